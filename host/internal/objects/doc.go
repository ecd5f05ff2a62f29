// Package objects keeps the large objects of a group on one member (package object): their bytes are beside
// the log, and commands name them. Keeper is what one member has. It is the hook of the apply lane, a section
// of the snapshots, and a duty of the turn. Fetches moves the bytes between hosts, by package bulk.
//
// The apply lane calls what changes the table (apply.go) and what restores it (section.go). The turn calls
// Step, and what asks for members (holders.go). Uploads belong to their callers (upload.go). Keeper.mu guards
// what they share. It is not held while the disk works, and while the wiring is called only where that waits
// for nothing.
//
// Reading order: keeper.go, apply.go, holders.go, record.go, removal.go, section.go, upload.go, fetch.go,
// sent.go, metrics.go.
package objects
