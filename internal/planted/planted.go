// Package planted holds bugs on purpose. A judge that does not find them judges nothing.
//
// The bugs of the log and of the snapshots are edits (wal_test.go and snapshot_test.go here): a text of a
// file, and the text that replaces it while a judge runs. The code does not mention them.
//
// The bugs of the core and of the runtime are still constants of this package. Each is false unless the build
// tag with its name is set (sim/planted_test.go). A false constant costs nothing: the compiler removes the
// code that depends on it.
package planted
