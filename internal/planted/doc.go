// Package planted holds bugs on purpose. A judge that does not find them judges nothing.
//
// Each bug is an edit: a text that occurs once in a file of the repository, and the text that replaces it
// while a judge runs (decision 0001). So the code that users build does not mention
// them, and this package holds tests only:
//
//	core_….go                                    bugs of the core: elections, replication, members, reads,
//	                                             members without authority
//	runtime, turns, outcomes, takes, hostile,    bugs of the runtime and the transport
//	objects, transport
//	wal, snapshot                                bugs of what is on the disk
//	observing                                    bugs of machines that learn of the members of their group
//	timers                                       bugs of timers in log time, and of the leader's clock
//	service                                      bugs of the service: watches, and what clients are told
//	edit, combine, check                         how edits are applied and checked
//	judge, run                                   which tests are to find a bug, and the runs
//	oracles                                      for each oracle a bug that only it finds
//	history                                      bugs of other systems, and findings of reviews, by bug
//	table                                        internal/planted/testdata/planted-bugs.md
package planted
