// Package rescue makes directories of hosts without a host. Rescue makes the survivor of a cluster that has
// lost its majority the beginning of a new one. Restore begins a new cluster from archives. Operators call
// this package, by "millrace members rescue" and "millrace snapshot restore", and programs that have their
// own tools.
//
// No host may run on the directories: the locks of the directories are held while it works. It has no other
// lock and no goroutine. Everything it has decided is in a file before it is done, so a call that was
// interrupted can be repeated.
//
// Reading order: options.go, rescue.go (what is decided), survivor.go (what is read), directory.go (what is
// written), restoration.go, tree.go.
package rescue
