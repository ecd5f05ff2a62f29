// Package planted holds bugs on purpose. A judge that does not find them judges nothing.
//
// Each bug is an edit: a text that occurs once in a file of the repository, and the text that replaces it
// while a judge runs (docs/decisions/0001-planted-bugs.md). So the code that users build does not mention
// them, and this package holds tests only:
//
//	core_test.go, corechanges_test.go, runtime_test.go,   the bugs, by what they are in
//	objects_test.go, transport_test.go, wal_test.go,
//	snapshot_test.go
//	edit_test.go, combine_test.go, check_test.go          how edits are applied and checked
//	judge_test.go, run_test.go                            which tests are to find a bug, and the runs
//	oracles_test.go                                       for each oracle a bug that only it finds
//	history_test.go                                       the bugs of other systems and of the reviews, by bug
//	table_test.go                                         docs/internals/planted-bugs.md
package planted
