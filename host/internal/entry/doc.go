// Package entry has the bytes that the runtime itself writes into the log of a group (raftpb.EntryHost) and
// into a snapshot (snapshot.Manifest.Host). They are the founding of the group, its members, the commands
// that it skips, and the decision of a rescue.
//
// Every member reads these bytes, and a rescue or a restore reads them without a host, so they are pure
// values: no lock, no clock, no disk. What is read may come from another host, and is refused if it is not
// exactly what this package writes.
//
// Reading order: founding.go, roster.go, rescue.go, skip.go, block.go, reader.go.
package entry
