// Package planted holds bugs on purpose, which the judges must find, or they judge nothing.
//
// The bugs of the log are edits (wal_test.go here): a text of a file, and what stands in its place while a judge runs. The
// log's own code knows nothing of them.
//
// The bugs of the core and of the runtime are still constants of this package: false, unless the build tag of its name
// asks for it (sim/planted_test.go). A false constant costs nothing: the compiler removes what hangs on it.
package planted
