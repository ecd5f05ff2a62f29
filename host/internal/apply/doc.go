// Package apply calls the state machines of a host. It owns the lanes and says which group gets a lane
// next. It owns the queue of each group: its rounds, the halt of its machine, the commands that it skips
// and its log time. Commands turn entries into commands with sessions. A group is a Member to its queue,
// and its waiting calls are Callers; package host implements both.
//
// Lanes have one lock for all seats and for what is queued. LogTime and Skips have one each. None is held
// while a machine works. A queue holds a lock of its own while its machine is called in a turn: both a lane
// and a turn may call it.
//
// Reading order: lanes.go, queue.go, round.go, hook.go, commands.go, restore.go, logtime.go, skips.go,
// skip.go, halt.go, note.go, rebuild.go, wait.go, members.go.
package apply
