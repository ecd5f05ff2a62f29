package main

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
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

// exitMeaning says what a status means, in one line: for all verbs, and for those of one kind, where ""
// stands for the text for all.
type exitMeaning struct {
	status  int
	meaning string
	bench   string // bench and its verbs
	wal     string // wal and diff, which are about one log or two
	log     string // wal verify and repair
	print   string // wal stat and dump, which judge nothing
	snap    string // snapshot and its verbs
	cert    string // cert and its verbs
	members string // members and its verbs
	objects string // objects and its verbs
	sim     string // sim and its verbs
	lab     string // lab and its verbs
	serve   string // serve
}

var exitMeanings = []exitMeaning{
	{status: exitOK, serve: "the end was asked for, by SIGTERM or SIGINT, and everything is closed", meaning: "done; the log is whole, or the logs agree; all snapshots and objects are whole; all certificates are valid", bench: "done", lab: "done; no condition is broken", wal: "done; the log is whole, or the logs agree",
		log: "the log is whole", print: "done", snap: "all snapshots are whole", cert: "done; all certificates are valid", members: "done; nothing is refused", objects: "done; no object is damaged", sim: "done; no seed has failed"},
	{status: exitFailed, meaning: "what was measured failed or lost an acknowledged write; the logs differ where they may; a change of members is refused; a simulated seed failed; a replay differs from its recording; a run is slower than was accepted",
		serve: "the service could not start, or has failed; standard error says why",
		lab:   "what was measured failed or lost an acknowledged write; a condition of a comparison is broken",
		sim:   "a seed failed, or cells of the matrix were hit less often than demanded",
		bench: "what was measured failed or lost an acknowledged write", wal: "the logs differ where they may", members: "the change is refused, or was cancelled"},
	{status: exitDamaged, meaning: "the log, a snapshot or an object is damaged; the logs differ where they must not; a certificate is not valid; a file of results or a recording is damaged", sim: "a file of results is damaged", lab: "a file of results is damaged", wal: "the log is damaged; the logs differ where they must not",
		log: "the log is damaged", snap: "a snapshot is damaged", cert: "a certificate or a key is not valid", objects: "an object is damaged"},
	{status: exitCannot, serve: "it could not start, or has ended: a full disk, no such directory, a directory in use", meaning: "it cannot be done or read: no such directory, a full disk, a log in use, a certificate that exists",
		bench: "it cannot be done: no such directory, a full disk", lab: "it cannot be done: no such directory, other environments, too few repeats for a condition", snap: "it cannot be read: no such directory, no snapshot in it",
		cert: "it cannot be done: no such file, a certificate that exists", members: "it cannot be done: no such directory, a host that does not run, or runs",
		objects: "it cannot be read: no such directory, no group with objects in it, no such object", sim: "it cannot be done: no such file, a full disk"},
	{status: exitAmnesia, meaning: "the log is whole, but with amnesia: its host neither votes nor counts until it has caught up"},
	{status: exitUsage, meaning: "the command line is wrong: unknown verb or flag, value out of bounds"},
	{status: exitInterrupted, serve: "a second signal ended it at once", meaning: "interrupted, by SIGINT or SIGTERM"},
}

// exitHelp lists the given statuses for the help of wal or diff, or all of them.
func exitHelp(statuses ...int) string {
	return exitTable(statuses, func(e exitMeaning) string { return e.wal })
}

// exitTable lists the given statuses, or all of them, as text tells them or, if that is "", as for all verbs.
func exitTable(statuses []int, text func(exitMeaning) string) string {
	var b strings.Builder
	b.WriteString("Exit status\n")
	for _, e := range exitMeanings {
		if len(statuses) == 0 || slices.Contains(statuses, e.status) {
			fmt.Fprintf(&b, "  %3d  %s\n", e.status, cmp.Or(text(e), e.meaning))
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

func benchExitHelp(statuses ...int) string {
	return exitTable(statuses, func(e exitMeaning) string { return e.bench })
}

func logExitHelp(statuses ...int) string {
	return exitTable(statuses, func(e exitMeaning) string { return e.log })
}

func printExitHelp(statuses ...int) string {
	return exitTable(statuses, func(e exitMeaning) string { return e.print })
}

func snapshotExitHelp(statuses ...int) string {
	if len(statuses) == 0 {
		statuses = []int{exitOK, exitDamaged, exitCannot, exitUsage, exitInterrupted}
	}
	return exitTable(statuses, func(e exitMeaning) string { return e.snap })
}

func certExitHelp(statuses ...int) string {
	if len(statuses) == 0 {
		statuses = []int{exitOK, exitDamaged, exitCannot, exitUsage, exitInterrupted}
	}
	return exitTable(statuses, func(e exitMeaning) string { return e.cert })
}

func membersExitHelp(statuses ...int) string {
	if len(statuses) == 0 {
		statuses = []int{exitOK, exitFailed, exitCannot, exitUsage, exitInterrupted}
	}
	return exitTable(statuses, func(e exitMeaning) string { return e.members })
}

func objectsExitHelp() string {
	return exitTable([]int{exitOK, exitDamaged, exitCannot, exitUsage, exitInterrupted}, func(e exitMeaning) string { return e.objects })
}

func simExitHelp() string {
	return exitTable([]int{exitOK, exitFailed, exitDamaged, exitCannot, exitUsage, exitInterrupted}, func(e exitMeaning) string { return e.sim })
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
	case errors.Is(err, archive.ErrDamaged):
		return exitDamaged
	case errors.Is(err, lab.ErrCannot), errors.Is(err, syscall.ENOSPC):
		return exitCannot
	}
	return exitFailed
}

// otherField is a field that the reason of a lab.FieldError names besides its own.
var otherField = regexp.MustCompile(`\{[A-Z][A-Za-z]*\}`)

// sentence returns an error as one line, with flags in place of the fields of a plan.
func sentence(err error) string {
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	text = strings.TrimPrefix(text, "millrace: ") // run prints the name, once
	for _, before := range []string{": ", "; "} {
		text = strings.ReplaceAll(text, before+"millrace: ", before)
	}
	var refused *lab.FieldError
	if flag := ""; errors.As(err, &refused) {
		if flag = flagOf[refused.Field]; flag != "" {
			reason := otherField.ReplaceAllStringFunc(refused.Reason, func(field string) string { return "--" + flagOf[strings.Trim(field, "{}")] })
			text = strings.Replace(text, refused.Error(), "--"+flag+": "+reason, 1)
		}
	}
	return text
}

// flagOf names the flag that sets a field of a plan. The lab knows no flags: its errors name a field
// (lab.FieldError), and only sentence translates them.
var flagOf = map[string]string{
	"Appenders":     "appenders",
	"BatchBytes":    "mechanisms",
	"Budget":        "quick",
	"Clients":       "clients",
	"Dir":           "dir",
	"DiskBandwidth": "disk-bandwidth",
	"Durability":    "durability",
	"Duration":      "duration",
	"Failures":      "failures",
	"Force":         "force",
	"FsyncDelay":    "fsync-delay",
	"Groups":        "groups",
	"Hits":          "hits",
	"Hosts":         "nodes",
	"KeepBytes":     "keep-mib",
	"Length":        "length",
	"Logs":          "logs",
	"MaxInFlight":   "max-in-flight",
	"Minutes":       "minutes",
	"Out":           "out",
	"Patience":      "patience",
	"Pipelines":     "pipelines",
	"Profile":       "profile",
	"Rates":         "rate",
	"RecoverBytes":  "recover-mib",
	"Runs":          "runs",
	"Seed":          "seed",
	"Seeds":         "seeds",
	"Part":          "shard",
	"Shrink":        "shrink",
	"Skip":          "skip",
	"Soak":          "soak",
	"Trace":         "events",
	"ValueBytes":    "value-bytes",
	"Warmup":        "warmup",
	"Young":         "young",
	"Where":         "where",
	"Without":       "without",
	"EarlyAck":      "early-ack",
	"Engine":        "engine",
	"Log":           "log",
	"MaxWarmup":     "max-warmup",
	"MinWarmup":     "min-warmup",
	"NetDelay":      "net-delay",
	"Operation":     "operation",
	"Repeats":       "repeat",
	"Resume":        "resume",
	"Transport":     "transport",
	"Workers":       "workers",
	"Bandwidth":     "disk-bandwidth",
	"Certificates":  "certificates",
	"For":           "for",
	"From":          "from",
	"Keep":          "keep",
	"Serve":         "serve",
	"ServeFor":      "serve-for",
	"Wait":          "wait",
	"Health":        "health",
	"ID":            "id",
	"Insecure":      "insecure",
	"Leases":        "leases",
	"Listen":        "listen",
	"Loads":         "loads",
	"Members":       "members",
	"Pipeline":      "pipeline",
	"Probe":         "probe",
	"Processes":     "processes",
	"SnapshotMiB":   "snapshot-mib",
}
