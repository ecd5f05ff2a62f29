package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/flight"
	"github.com/millrace/millrace/internal/counting"
	"github.com/millrace/millrace/internal/scratch"
)

// writeFlight returns a recording of a host that has led a group and taken three commands.
func writeFlight(t *testing.T) (path string) {
	t.Helper()
	n, err := millrace.Open(t.Context(), millrace.Config{ID: 1, Dir: t.TempDir(), Members: map[uint64]string{1: scratch.Address(t)}, FlightRecorder: host.FlightRecorder{Bytes: 1 << 20, Data: flight.Hashes}, Logger: slog.New(slog.DiscardHandler)},
		millrace.InMemory(&counting.Counter{}, millrace.Binary[int64]()))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(context.Background())
	propose(t, n, 1, 1)
	propose(t, n, 2, 3)
	propose(t, n, 3, 6)
	path, err = n.Host().DumpFlight(t.Context(), "a test asks")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "it.flight")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A recording is explained in sentences, and in JSON; only the wanted steps are printed.
func TestSimReplayExplains(t *testing.T) {
	path := writeFlight(t)
	status, all, _ := runVerb(t, t.Context(), "sim", "replay", path)
	for _, want := range []string{
		"written ", ": a test asks\n", "member 1 starts: on its disk are term 0, vote for none", "becomes candidate in term 1; it was ",
		"votes for itself in term 1", "writes term 1, vote for 1", "counts when that is durable", "becomes leader in term 1", "the host proposes 1 entry",
		"commits through ", "with member 1 a quorum holds it", "hands to the state machine", "the state machine has applied the log through", "the replay is exact\n",
	} {
		if status != exitOK || !strings.Contains(all, want) {
			t.Errorf("status %d, without %q", status, want)
		}
	}
	if _, quiet, _ := runVerb(t, t.Context(), "sim", "replay", path, "--quiet", "--group", "1"); strings.Contains(quiet, "step 1 ") || !strings.Contains(quiet, "the replay is exact") {
		t.Errorf("--quiet: %s", quiet)
	}
	if _, some, _ := runVerb(t, t.Context(), "sim", "replay", path, "--from", "3", "--to", "4"); strings.Count(some, "\ngroup 1 step ") != 2 || !strings.Contains(some, "step 3 ") {
		t.Errorf("--from 3 --to 4: %s", some)
	}
	if _, none, _ := runVerb(t, t.Context(), "sim", "replay", path, "--to", "2020-01-01T00:00:00Z"); strings.Contains(none, " step ") {
		t.Errorf("--to a time before: %s", none)
	}
	if _, some, _ := runVerb(t, t.Context(), "sim", "replay", path, "--from", "2020-01-01T00:00:00Z"); strings.Count(some, "\ngroup 1 step ") != strings.Count(all, "\ngroup 1 step ") {
		t.Errorf("--from a time before: %s", some)
	}
	_, lines, _ := runVerb(t, t.Context(), "sim", "replay", path, "--json")
	d := json.NewDecoder(strings.NewReader(lines))
	steps, entries := 0, 0
	for d.More() {
		var line struct {
			jsonStep
			Differences *int `json:"differences"`
		}
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if steps += 1; line.Differences != nil && (d.More() || *line.Differences != 0) {
			t.Errorf("%d differences in line %d", *line.Differences, steps)
		}
		entries += len(line.Entries)
	}
	if steps != strings.Count(all, "\ngroup 1 step ")+1 || entries < 4 {
		t.Errorf("%d lines with %d entries", steps, entries)
	}
}

// A file that is no recording, or not whole, or from another core, gets a sentence and a status.
func TestSimReplayOfBadFiles(t *testing.T) {
	path := writeFlight(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replay := func(content []byte, args ...string) (status int, text string) {
		t.Helper()
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		status, out, errs := runVerb(t, t.Context(), append([]string{"sim", "replay", path}, args...)...)
		return status, out + errs
	}
	flipped := slices.Clone(whole)
	flipped[len(whole)/2] ^= 1
	for _, tc := range []struct {
		name    string
		content []byte
		args    []string
		status  int
		text    string
	}{
		{"foreign", []byte("PK\x03\x04"), nil, exitDamaged, "is no recording"},
		{"empty", nil, nil, exitDamaged, "is no recording"},
		{"another version", []byte("millrace flight\x09"), nil, exitDamaged, "version 9"},
		{"cut off", whole[:len(whole)-20], nil, exitDamaged, "is cut off"},
		{"flipped", flipped, nil, exitDamaged, "the recording is damaged"},
		{"no such group", whole, []string{"--group", "9"}, exitCannot, "has no group 9; it has [1]"},
		{"no bound", whole, []string{"--from", "soon"}, exitUsage, "neither the number of a step"},
	} {
		if status, text := replay(tc.content, tc.args...); status != tc.status || !strings.Contains(text, tc.text) {
			t.Errorf("%s: status %d, want %d and %q: %s", tc.name, status, tc.status, tc.text, text)
		}
	}
	if status, _, _ := runVerb(t, t.Context(), "sim", "replay", path+".none"); status != exitCannot {
		t.Errorf("no such file: status %d", status)
	}
	differs := false
	for at := 1; at < 400 && !differs; at++ {
		status, text := replay(altered(t, whole, at), "--quiet")
		differs = status == exitFailed && strings.Contains(text, "THE REPLAY DIFFERS")
	}
	if !differs {
		t.Error("no byte of the inputs makes the replay differ")
	}
}

// altered changes one byte of the records of the first stretch, counted from its end, and makes its check
// right again.
func altered(t *testing.T, whole []byte, fromEnd int) []byte {
	b := bytes.Clone(whole)
	n, k := binary.Uvarint(b[16:])
	from := 16 + k + int(n) + 4
	at := from + 1
	for range 3 {
		_, k := binary.Uvarint(b[at:])
		at += k
	}
	n, k = binary.Uvarint(b[at+1:])
	end := at + 1 + k + int(n)
	if fromEnd > int(n) {
		t.Fatalf("the records have %d bytes", n)
	}
	b[end-fromEnd] ^= 1
	binary.LittleEndian.PutUint32(b[end:], crc32.Checksum(b[from:end], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// A running host writes a file when it is asked over its socket.
func TestFlightOfARunningHost(t *testing.T) {
	t.Chdir(t.TempDir())
	runMembers(t)
	status, text, _ := runVerb(t, t.Context(), "flight", "one", "--group", "1")
	if path := filepath.Join("one", "flight", "000001.flight"); status != exitOK || !strings.Contains(text, path) {
		t.Fatalf("status %d: %s", status, text)
	} else if status, text, _ := runVerb(t, t.Context(), "sim", "replay", path, "--quiet"); status != exitOK || !strings.Contains(text, "asked for over the admin socket") {
		t.Errorf("status %d: %s", status, text)
	}
	if status, _, text := runVerb(t, t.Context(), "flight", "one", "--group", "9"); status != exitFailed || !strings.Contains(text, "group 9 is not open") {
		t.Errorf("status %d: %s", status, text)
	}
	if status, _, text := runVerb(t, t.Context(), "flight", "."); status != exitCannot || !strings.Contains(text, "no admin socket") {
		t.Errorf("status %d: %s", status, text)
	}
}
