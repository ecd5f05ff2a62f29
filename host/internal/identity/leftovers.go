package identity

import (
	"fmt"
	"path/filepath"
	"slices"
)

// A rescue and a restore (package host/rescue) write a directory while no host runs on it. Each marks the
// directory by a file before it changes anything, and removes the mark when it is done. No host runs on a
// marked directory.
const (
	RestoringFile = "RESTORING"
	RescuingFile  = "RESCUING"
)

// RejectRestoring says why a host must not run on a directory in which a restore has not ended, or returns
// nil.
func RejectRestoring(names []string, dir string) error {
	if !slices.Contains(names, RestoringFile) {
		return nil
	}
	return fmt.Errorf("millrace: a restore in directory %s has not ended (there is %s), and what it has written is a part; remove the directory, and restore again", dir, filepath.Join(dir, RestoringFile))
}

// RejectRescuing says why a host must not run on a directory whose rescue has not ended, or returns nil.
func RejectRescuing(names []string, dir string) error {
	if !slices.Contains(names, RescuingFile) {
		return nil
	}
	return fmt.Errorf("millrace: a rescue of directory %s has begun and is not complete (there is %s); run it again: millrace members rescue --write --accept-loss %s", dir, filepath.Join(dir, RescuingFile), dir)
}
