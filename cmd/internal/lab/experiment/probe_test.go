package experiment

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// This machine, whichever it is: what is measured is positive and in order, and nothing is left behind.
func TestMeasureThisMachine(t *testing.T) {
	dir := t.TempDir()
	e := ReadMachine(dir)
	if e.Cores == 0 || e.GoVersion == "" || e.GOGC == "" || e.Dir != dir {
		t.Errorf("%+v", e)
	}
	if err := ProbeMachine(t.Context(), &e, dir, 40*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	d, n, m := e.Disk, e.Network, e.Memory
	if d.Fsyncs < 1 || !(0 < d.FsyncP50Us && d.FsyncP50Us <= d.FsyncP99Us && d.FsyncP99Us <= d.FsyncMaxUs*1.01) || d.WriteBytesSec <= 0 {
		t.Errorf("disk %+v", d)
	}
	if n.RoundTrips < 1 || !(0 < n.RTTP50Us && n.RTTP50Us <= n.RTTP99Us) {
		t.Errorf("network %+v", n)
	}
	if m.CRCBytesSec < 1e6 || m.CopyBytesSec < 1e6 {
		t.Errorf("memory %+v", m)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// An interrupt ends a probe at once, with its cause.
func TestMeasureIsInterrupted(t *testing.T) {
	dir, cause := t.TempDir(), errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := ProbeMachine(ctx, &archive.Environment{}, dir, time.Hour); !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestWarnings(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*archive.Environment)
		want   string
	}{
		{"a machine of its own", func(*archive.Environment) {}, ""},
		{"memory for a disk", func(e *archive.Environment) { e.Filesystem = lab.Tmpfs }, "tmpfs"},
		{"a cache for a disk", func(e *archive.Environment) { e.Disk = &archive.Disk{FsyncP50Us: 4} }, "not-durable"},
		{"neighbours", func(e *archive.Environment) { e.Load1 = 2.1 }, "busy-machine"},
		{"half of the cores", func(e *archive.Environment) { e.CgroupCPU = 2 }, "busy-machine"},
	} {
		e := archive.Environment{Environment: lab.Environment{Cores: 4, Load1: 1.9, Filesystem: "ext4"}, CgroupCPU: 4, Disk: &archive.Disk{FsyncP50Us: 100}}
		tc.change(&e)
		var codes []string
		for _, w := range MachineWarnings(e) {
			codes = append(codes, w.Code)
		}
		if have := strings.Join(codes, " "); have != tc.want {
			t.Errorf("%s: warnings %q, want %q", tc.name, have, tc.want)
		}
	}
}
