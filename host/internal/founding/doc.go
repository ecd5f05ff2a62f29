// Package founding says how a group begins: which directories its members are bound to, and from when on it
// takes commands. Package host proposes, campaigns and greets (host/founding.go), and is told what the log
// has.
//
// A turn owns a Group. It has no lock: what others read is published atomically.
//
// Reading order: group.go, promise.go.
package founding
