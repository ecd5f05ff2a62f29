// Package peerlog is what a program needs of the lab to measure another project's log for `millrace bench
// wal`. The loop, the clock and the check are the lab's; the program brings a Library. It promises nothing
// to other repositories: it changes with the lab.
package peerlog

import (
	"io"

	"github.com/millrace/millrace/cmd/internal/lab/logs/child"
)

type (
	// Library is a log that is measured.
	Library = child.Library
	// Setup says which log to open.
	Setup = child.Setup
	// Entry is what the log of a group gets.
	Entry = child.Entry
	// GroupLog is the log of one group.
	GroupLog = child.GroupLog
	// Store has the logs of all groups.
	Store = child.Store
)

// LogForEach makes a store of a library whose log serves one group.
func LogForEach(open func(Setup) (GroupLog, error)) func(Setup) (Store, error) {
	return child.LogForEach(open)
}

// Serve is the main function of the program: it answers the one request on in.
func Serve(in io.Reader, out io.Writer, library Library) error {
	return child.Serve(in, out, library)
}
