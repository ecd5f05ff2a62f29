// Package watch serves watches: a cursor in the log of events for each watcher.
//
// Apply publishes the events of each revision to a ring (package feed) and never waits. One dispatcher
// (hub.go) takes each batch once, finds the watchers of its keys (index.go), and appends the events to
// the queues of their streams. A stream (stream.go) has one goroutine that sends, and a queue of
// bounded bytes.
//
// A watcher is in one of two states. It is level: it is in the index, and all of its events before the
// hub's cursor are sent or in the queue of its stream. Or it is behind: it began in the past, or its
// stream was too slow and has dropped its queue. Then the stream replays the history from the watcher's
// cursor, at the pace of the client (replay.go), until the cursor has reached that of the hub. So a
// slow watcher costs reads and no memory, and loses nothing.
//
// What clients rely on: a watcher gets each revision once, ascending, and all events of a revision in
// one response unless it wants fragments. "Created" comes before its events. A progress notification
// never is ahead of events.
package watch
