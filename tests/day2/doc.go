// Package day2 repeats the second day of a new user on real processes.
//
// The first day is easy: a group is founded and takes commands. Then a member is killed, a disk is lost,
// hosts are added, moved, replaced and removed, certificates are renewed, a disk fills up, a program
// changes its working directory. Nothing may be lost meanwhile, and the tools must say what is true: after
// each step Explain has no cause on any member within ten seconds, and each sentence that the documents
// promise was seen.
//
// A client writes all day in one session. At the end the state must be exactly what was acknowledged.
//
//	(cd tests/day2 && go test -count=1 -v .)          the whole day: about a minute
//	(cd tests/day2 && go test -count=1 -v . -keep)    and keep directories and logs
//
// reports.sh runs the cases of public bug reports of other systems, where a directory of them is at hand.
//
// A step that needs root (a small filesystem of its own, limits of another process) is skipped without it,
// and says so.
package day2
