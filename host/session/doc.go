// Package session makes a command that may be sent twice take effect once (thesis §6.3). It has three
// parts. A header begins the entry of a command. An identity names a session. Each member of a group keeps
// a table beside its state machine.
//
// A session is known by a client id, 128 random bits, and by its birth in log time. A client draws both; no
// round trip registers them. The commands of a session are numbered from 1, and each carries the lowest
// number whose answer its client still waits for. The table applies a number once. It forgets numbers below
// the lowest, and sessions that are idle for Options.Expiry or for which there is no space. A command of a
// session that the table may have forgotten is refused as Expired; it is never applied a second time. The
// approach rejected is the one of the thesis, where a client asks for its id: it costs a round trip through
// the log before the first command.
//
// Log time is what the members of a group agree on: the time in which the group has had leaders, as the
// stamps in the headers say. It never goes back, and it stops while no command comes. No wall clock takes
// part, so a clock that jumps expires nothing.
//
// The package is pure: no I/O, clock, goroutine, lock or chance. Tables that are given the same commands are
// equal, and their forms (Table.AppendTo) are equal to the byte, however the commands are cut into batches.
package session
