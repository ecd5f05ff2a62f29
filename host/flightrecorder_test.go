package host_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/flight"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"go.uber.org/goleak"
)

// exact replays all groups of a recording, and returns the sentences of all steps.
func exact(t *testing.T, file *flight.File) string {
	t.Helper()
	var text strings.Builder
	for _, g := range file.Groups() {
		r, err := flight.Replay(t.Context(), file, g, func(s *flight.Step) error {
			fmt.Fprintln(&text, s.Input())
			for _, line := range s.Effects() {
				fmt.Fprintln(&text, "\t"+line)
			}
			return nil
		})
		if err != nil || r.Differences > 0 || r.Ready == 0 {
			t.Errorf("group %d: %+v: %v", g, r, err)
		}
	}
	return text.String()
}

func readFlight(t *testing.T, path string) *flight.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file, err := flight.Read(f)
	if err != nil || file.Cut {
		t.Fatalf("cut %t: %v", file.Cut, err)
	}
	return file
}

// A real cluster, with its goroutines: recordings are written while the hosts work, into files of the owner,
// and replay. The sentences say what happened. Commands are in the file only if that was asked for.
func TestFlightRecorderOfRealHosts(t *testing.T) {
	for _, data := range []flight.Data{flight.Lengths, flight.Hashes, flight.Payloads} {
		t.Run(data.String(), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			dir := scratch.Dir(t)
			c, err := startCluster(3, dir, pipeline.Async{}, func(c *host.Config) {
				c.FlightRecorder = host.FlightRecorder{Bytes: 256 << 10, Data: data}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.close(t)
			var paths []string
			for i := range 400 {
				if _, err := c.propose(deadline(t), fmt.Sprintf("a secret command %d", i)); err != nil {
					t.Fatal(err)
				}
				if i%20 == 0 {
					path, err := c.hosts[i%3].DumpFlight(t.Context(), "a test asks")
					if err != nil {
						t.Fatal(err)
					}
					paths = append(paths, path)
				}
			}
			for _, j := range c.journals {
				j.waitFor(t, 400)
			}
			for i, h := range c.hosts {
				if paths[i], err = h.DumpFlight(t.Context(), "a test asks", theGroup); err != nil {
					t.Fatal(err)
				}
			}
			for _, path := range paths[:8] {
				text, info := exact(t, readFlight(t, path)), must(os.Stat(path))
				if info.Mode() != 0o600 {
					t.Errorf("%s has mode %v", path, info.Mode())
				}
				if has := bytes.Contains(must(os.ReadFile(path)), []byte("a secret command")); has != (data == flight.Payloads) {
					t.Errorf("%s holds commands: %t", path, has)
				}
				for _, want := range []string{"accepts it: the logs agree", "commits through", "counts entries through"} {
					if i := slices.Index(paths, path); i < 3 && !strings.Contains(text, want) && !strings.Contains(text, "the host proposes") {
						t.Errorf("%s: nothing %q", path, want)
					}
				}
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A host without a recorder says so, and settings that make no sense are refused.
func TestFlightRecorderSettings(t *testing.T) {
	c := openMemoryCluster(t, pipeline.Async{})
	if _, err := c.hosts[0].DumpFlight(t.Context(), ""); !errors.Is(err, outcome.ErrNoFlightRecorder) {
		t.Error(err)
	}
	if err := c.hosts[0].WriteFlight(&bytes.Buffer{}, ""); !errors.Is(err, outcome.ErrNoFlightRecorder) {
		t.Error(err)
	}
	for _, f := range []host.FlightRecorder{{Data: flight.Payloads}, {Bytes: 1 << 20, Data: 7}, {Bytes: 1}, {Bytes: -1}, {Bytes: 1 << 60}} {
		config := c.configs[0]
		config.FlightRecorder = f
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), "Config.FlightRecorder") {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// A group that stops by itself leaves a file that says why, without being asked; and the files are bounded.
func TestFlightRecorderOfAGroupThatStops(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := openMemoryCluster(t, pipeline.Async{}, func(c *host.Config) { c.FlightRecorder.Bytes = 1 << 20 })
	defer c.close(t)
	c.leader(t)
	h, disk := c.hosts[1], c.disks[1]
	g, err := h.OpenGroup(t.Context(), host.GroupConfig{ID: 5, Members: []uint64{2}}, failing{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.WaitLeader(deadline(t)); err != nil {
		t.Fatal(err)
	}
	_, _ = g.Propose(deadline(t), []byte("x"))
	var files []string
	for ctx := deadline(t); len(files) == 0; files = flightsIn(disk) {
		if ctx.Err() != nil {
			t.Fatal("no file was written")
		}
		runtime.Gosched()
	}
	path, err := h.DumpFlight(t.Context(), "asked")
	if err != nil || path != filepath.Join("/data", "2", "flight", "000002.flight") {
		t.Errorf("%q, %v", path, err)
	}
	file := readMemory(t, disk, files[0])
	if !strings.Contains(file.Meta.Reason, "group 5 has halted its machine") || !slices.Equal(file.Groups(), []uint64{5}) {
		t.Errorf("%+v of groups %v", file.Meta, file.Groups())
	}
	exact(t, file)
	for range 20 {
		if _, err := h.DumpFlight(t.Context(), "asked"); err != nil {
			t.Fatal(err)
		}
	}
	if files := flightsIn(disk); len(files) != 16 || files[15] != "000022.flight" {
		t.Errorf("%d files: %v", len(files), files)
	}
	if file := readMemory(t, disk, "000022.flight"); !slices.Equal(file.Groups(), []uint64{theGroup, 5}) {
		t.Errorf("groups %v", file.Groups())
	}
}

// A file that cannot be written for lack of a descriptor is not there, or is whole, and what is recorded can
// be written later.
func TestFlightRecorderWithoutADescriptor(t *testing.T) {
	c := openMemoryCluster(t, pipeline.Async{}, func(c *host.Config) { c.FlightRecorder.Bytes = 1 << 20 })
	defer c.close(t)
	c.leader(t)
	h, disk := c.hosts[1], c.disks[1]
	failed := 0
	for at := 0; at < 16; at++ {
		var opens atomic.Int64 // a host that records something of its own may write a file beside
		disk.SetHook(func(op crashfs.Op) error {
			if op.Kind.Opens() && strings.Contains(op.Name, "/flight") && opens.Add(1) == int64(at+1) {
				return syscall.EMFILE
			}
			return nil
		})
		_, err := h.DumpFlight(t.Context(), "asked")
		disk.SetHook(nil)
		if opens.Load() <= int64(at) {
			break
		}
		if failed++; !vfs.IsShort(err) {
			t.Errorf("open %d: %v, want %v", at, err, syscall.EMFILE)
		}
		path, err := h.DumpFlight(t.Context(), "asked")
		if err != nil {
			t.Fatal(err)
		}
		exact(t, readMemory(t, disk, filepath.Base(path)))
	}
	if failed < 3 {
		t.Errorf("have %d opens that failed, want those of the directory, of the file, and of the sync", failed)
	}
}

// A host that is closed writes no file into a directory that may be another process's. What it has recorded
// can still be written elsewhere.
func TestFlightRecorderOfAClosedHost(t *testing.T) {
	c := openMemoryCluster(t, pipeline.Async{}, func(c *host.Config) { c.FlightRecorder.Bytes = 1 << 20 })
	c.leader(t)
	c.close(t)
	if _, err := c.hosts[0].DumpFlight(t.Context(), "asked"); !errors.Is(err, outcome.ErrStopped) {
		t.Error(err)
	}
	var b bytes.Buffer
	if err := c.hosts[0].WriteFlight(&b, "asked"); err != nil {
		t.Fatal(err)
	}
	file, err := flight.Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if text := exact(t, file); !strings.Contains(text, "member 1 starts") {
		t.Error("it does not begin with the start of the core")
	}
}

type failing struct{}

func (failing) Apply(entries []statemachine.Entry) error {
	if len(entries) > 0 && len(entries[0].Data) > 0 {
		return errors.New("the machine breaks")
	}
	return nil
}

func flightsIn(disk *crashfs.FS) (files []string) {
	names, _ := disk.Mount().ReadDir("/data/2/flight") // there is none yet
	for _, name := range names {
		if strings.HasSuffix(name, ".flight") {
			files = append(files, name)
		}
	}
	slices.Sort(files)
	return files
}

func readMemory(t *testing.T, disk *crashfs.FS, name string) *flight.File {
	t.Helper()
	f := must(disk.Mount().Open("/data/2/flight/" + name))
	defer f.Close()
	content := make([]byte, must(f.Size()))
	must(f.ReadAt(content, 0))
	file, err := flight.Read(bytes.NewReader(content))
	if err != nil || file.Cut {
		t.Fatalf("%s: cut %t: %v", name, file.Cut, err)
	}
	return file
}
