package wal

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// On a filesystem that copies on write, Open logs a warning that says what that means. On others it logs
// none.
func TestCopyOnWriteIsToldAtOpen(t *testing.T) {
	for _, p := range []vfs.Placement{{}, {Moves: true, Filesystem: "ZFS", Reason: "it cannot be told to write in place"}} {
		var told bytes.Buffer
		disk := crashfs.New()
		disk.SetPlacement(p)
		opts := testOptions(disk, &manual{})
		opts.Logger = slog.New(slog.NewTextHandler(&told, &slog.HandlerOptions{Level: slog.LevelWarn}))
		mustClose(t, mustOpen(t, opts))
		text := told.String()
		if got := strings.Contains(text, "a full disk may keep this member from opening"); got != p.Moves || got && !strings.Contains(text, p.Reason) {
			t.Errorf("%+v: told %q", p, text)
		}
	}
}
