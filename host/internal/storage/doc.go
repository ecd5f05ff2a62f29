// Package storage is the log of a group as its core reads it, and the lanes that read what is not in
// memory. A turn waits for no disk.
//
// The core calls Storage in a turn, which owns it. A read that must wait goes to the Reader of the host that
// lacks the entries; the group brings the Result into a later turn (Storage.Keep). The locks of Readers guard
// their lists, and are not held while a disk works.
//
// Reading order: storage.go, readers.go, shortages.go.
package storage
