// Package batches decides when a leader's next batch begins: the question that the thesis leaves open
// (§10.2.2). A batch is the commands that one turn of a group puts into the log, and sends to all followers.
//
// There are two answers, and neither is always the better one:
//
//	at once   a command that comes while a batch is under way leaves at once. Followers batch what arrives
//	          while they sync. It is best while processors are idle
//	cohort    no batch begins while one is under way, and the next one waits a moment for the clients that
//	          were just answered. So all clients share each round. It is best where processors are the limit,
//	          since each round costs as much for one command as for a hundred
//
// Cohort is the second. Choice tries both and keeps the one under which commands take less time.
// The package is pure: time comes from the caller. A value belongs to one group, and its turn owns it.
package batches
