// Package planted holds bugs on purpose. A judge that does not find them judges nothing.
//
// The bugs of the log and of the snapshots are edits (wal_test.go and snapshot_test.go here): a text of a
// file, and the text that replaces it while a judge runs. The code does not mention them.
//
// The bugs of the core and of the runtime are still names of this package. They are constants, and false: a
// false constant costs nothing, since the compiler removes the code that depends on it. With the build tag
// "planted" they are variables (some.go), and the one that the environment names is true
// (sim/planted_test.go): so one build serves all of them.
package planted

// Variable is the environment variable that names the bug, with the build tag "planted".
const Variable = "MILLRACE_PLANTED"
