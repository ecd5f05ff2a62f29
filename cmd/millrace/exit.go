package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/wal/inspect"
)

// The exit statuses, the same for all verbs. docs/operate/exit-statuses.md has the same table.
const (
	exitOK          = inspect.ExitWhole
	exitFailed      = inspect.ExitDiffers
	exitDamaged     = inspect.ExitDamaged
	exitCannot      = inspect.ExitCannot
	exitAmnesia     = inspect.ExitAmnesia
	exitUsage       = 64  // EX_USAGE of sysexits.h
	exitInterrupted = 130 // as shells count SIGINT
)

// exitMeanings says what a status means, in one line each.
var exitMeanings = []struct {
	status  int
	meaning string
}{
	{exitOK, "done; the log is whole, or the logs agree"},
	{exitFailed, "what was measured failed or lost an acknowledged write; the logs differ where they may"},
	{exitDamaged, "the log is damaged; the logs differ where they must not"},
	{exitCannot, "it cannot be done or read: no such directory, a full disk, a log in use"},
	{exitAmnesia, "the log is whole, but with amnesia: its host does not start"},
	{exitUsage, "the command line is wrong: unknown verb or flag, value out of bounds"},
	{exitInterrupted, "interrupted"},
}

// exitHelp lists the given statuses for a help text, or all of them.
func exitHelp(statuses ...int) string {
	var b strings.Builder
	b.WriteString("Exit status\n")
	for _, e := range exitMeanings {
		if len(statuses) == 0 || slices.Contains(statuses, e.status) {
			fmt.Fprintf(&b, "  %3d  %s\n", e.status, e.meaning)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// usageError is a mistake on the command line.
type usageError struct{ error }

// Unwrap returns the mistake.
func (e usageError) Unwrap() error { return e.error }

// statusError ends a command with an exit status of its own. Its message, if it has one, is printed.
type statusError struct {
	status int
	error
}

// Unwrap returns the error without the status.
func (e statusError) Unwrap() error { return e.error }

// errAnswered is the error of a command whose answer has said everything.
var errAnswered = errors.New("")

var errInterrupted = errors.New("interrupted")

// cannot marks an error of a command that got no answer.
func cannot(err error) error {
	var usage usageError
	if err == nil || errors.Is(err, errInterrupted) || errors.As(err, &usage) {
		return err
	}
	return statusError{exitCannot, err}
}

// exitStatus returns the status for the error of a command.
func exitStatus(err error) int {
	var usage usageError
	var own statusError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.As(err, &own):
		return own.status
	case errors.As(err, &usage), errors.Is(err, lab.ErrInvalid):
		return exitUsage
	case errors.Is(err, lab.ErrCannot), errors.Is(err, syscall.ENOSPC):
		return exitCannot
	}
	return exitFailed
}

// sentence returns an error as one line, with flags in place of the fields of a plan.
func sentence(err error) string {
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	var refused *lab.FieldError
	if flag := ""; errors.As(err, &refused) {
		if flag = flagOf[refused.Field]; flag != "" {
			text = strings.Replace(text, refused.Error(), "--"+flag+": "+refused.Reason, 1)
		}
	}
	return text
}

// flagOf names the flag that sets a field of a plan. The lab knows no flags: its errors name a field
// (lab.FieldError), and only sentence translates them.
var flagOf = map[string]string{
	"Appenders":    "appenders",
	"BatchBytes":   "mechanisms",
	"Budget":       "quick",
	"Clients":      "clients",
	"Dir":          "dir",
	"Durability":   "durability",
	"Duration":     "duration",
	"FsyncDelay":   "fsync-delay",
	"Groups":       "groups",
	"Hosts":        "nodes",
	"KeepBytes":    "keep-mib",
	"Logs":         "logs",
	"MaxInFlight":  "max-in-flight",
	"Out":          "out",
	"Pipelines":    "pipelines",
	"Rates":        "rate",
	"RecoverBytes": "recover-mib",
	"Runs":         "runs",
	"Seed":         "seed",
	"ValueBytes":   "value-bytes",
	"Warmup":       "warmup",
}
