package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/remote"
	"github.com/millrace/millrace/transport/cert"
)

// results makes a directory with two runs, and something that is none.
func results(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i, name := range []string{"monday", "tuesday"} {
		labtest.WriteArchive(t, filepath.Join(dir, name), labtest.Shape{Seed: uint64(i), Recipe: "load", Pipelines: []string{"async"}, Rates: []float64{1000}, Repeats: 1, Seconds: 1})
	}
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func collectServe(t *testing.T, dir string, own *cert.Credentials) *remote.ResultServer {
	t.Helper()
	s, err := remote.ServeResults(remote.ResultServing{Serve: "127.0.0.1:0", ServeFor: time.Minute}, dir, own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// credentials makes those of a load and of a member.
func credentials(t *testing.T) (load, member *cert.Credentials) {
	t.Helper()
	pki := t.TempDir()
	_, err := remote.MakeCertificates(pki, "test", 1, time.Hour)
	if err == nil {
		load, err = remote.LoadCredentials(pki)
	}
	if err == nil {
		member, err = remote.MemberCredentials(pki, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return load, member
}

// collectSaid collects what Collect says.
type collectSaid struct{ lines []string }

func (s *collectSaid) say(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *collectSaid) has(text string) bool {
	return strings.Contains(strings.Join(s.lines, "\n"), text)
}

// All runs arrive whole, over TLS, a partial one is replaced when the load has ended, and then the server may
// end.
func TestCollect(t *testing.T) {
	own, _ := credentials(t)
	dir, out := results(t), filepath.Join(t.TempDir(), "runs")
	labtest.WriteArchive(t, filepath.Join(dir, "now"), labtest.Shape{
		Seed: 9, Recipe: "load", Pipelines: []string{"async"}, Rates: []float64{1000}, Repeats: 1, Seconds: 1,
		Change: func(r *archive.Run, _ *archive.Environments) { r.Partial = true },
	})
	s := collectServe(t, dir, own)
	var says collectSaid
	o := remote.Collecting{From: s.Addr(), Credentials: own, Out: out, Say: says.say}
	dirs, err := remote.Collect(t.Context(), o)
	if err != nil || len(dirs) != 3 || !says.has("the load goes on: collect again") || !says.has("now: 1 points, PARTIAL") {
		t.Fatalf("%q, %v, %q", dirs, err, says.lines)
	}
	if err := os.RemoveAll(filepath.Join(dir, "now")); err != nil {
		t.Fatal(err)
	}
	labtest.WriteArchive(t, filepath.Join(dir, "now"), labtest.Shape{Seed: 9, Recipe: "load", Pipelines: []string{"async"}, Rates: []float64{1000, 2000}, Repeats: 1, Seconds: 1})
	awaited := make(chan error, 1)
	go func() { awaited <- s.Await(t.Context()) }()
	says, o.Wait = collectSaid{}, time.Minute
	o.Say = says.say
	if _, err := remote.Collect(t.Context(), o); err != nil || !says.has("monday is there already") || !says.has("now: 2 points") {
		t.Fatalf("%v, %q", err, says.lines)
	}
	if err := <-awaited; err != nil {
		t.Error(err)
	}
	for _, name := range []string{"monday", "tuesday", "now"} {
		a, err := archive.Read(filepath.Join(out, name))
		if err != nil || a.Run.Partial {
			t.Errorf("%s: %v", name, err)
		}
		files, err := os.ReadDir(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			have, err := os.ReadFile(filepath.Join(out, name, f.Name()))
			want, wantErr := os.ReadFile(filepath.Join(dir, name, f.Name()))
			if err != nil || wantErr != nil || string(have) != string(want) {
				t.Errorf("%s of %s differs (%v, %v)", f.Name(), name, err, wantErr)
			}
		}
	}
	if left, err := filepath.Glob(filepath.Join(out, ".*")); err != nil || left != nil {
		t.Errorf("%q is left, %v", left, err)
	}
}

// A collector that waits may come before the load serves: also before there is a directory to serve.
func TestCollectComesFirst(t *testing.T) {
	hole, err := net.Listen("tcp", "127.0.0.1:0") // a tunnel to nowhere
	if err != nil {
		t.Fatal(err)
	}
	addr, dir := hole.Addr().String(), filepath.Join(t.TempDir(), "later")
	told, collected := make(chan string, 10), make(chan error, 1)
	go func() {
		_, err := remote.Collect(t.Context(), remote.Collecting{From: addr, Out: t.TempDir(), Wait: time.Minute, Say: func(format string, args ...any) {
			told <- fmt.Sprintf(format, args...)
		}})
		collected <- err
	}()
	c, err := hole.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	hole.Close()
	if line := <-told; line != addr+" does not serve results; waiting 1m0s at most" {
		t.Error(line)
	}
	s, err := remote.ServeResults(remote.ResultServing{Serve: addr, ServeFor: time.Minute}, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if line := <-told; line != "the load goes on; waiting 1m0s at most" {
		t.Error(line)
	}
	if err := os.Rename(results(t), dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Await(t.Context()); err != nil {
		t.Error(err)
	}
	if err := errors.Join(<-collected, s.Close()); err != nil {
		t.Error(err)
	}
}

// A file beside the runs is not served, also to a client that knows its size and time: keys may be there.
func TestOnlyRunsAreServed(t *testing.T) {
	dir := results(t)
	key := filepath.Join(dir, "pki", "member-1-key.pem")
	if err := os.Mkdir(filepath.Dir(key), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := remote.DialConn(t.Context(), collectServe(t, dir, nil).Addr(), remote.Dialing{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for file, want := range map[string]remote.Status{key: remote.NotTaken, filepath.Join(dir, "monday", archive.ResultFile): remote.Done} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		request := fmt.Sprintf(`g{"Run": %q, "File": %q, "Bytes": %d, "Changed": %d}`, filepath.Base(filepath.Dir(file)), filepath.Base(file), info.Size(), info.ModTime().UnixNano())
		if status, text, err := c.Ask(t.Context(), []byte(request)); status != want || err != nil {
			t.Errorf("%s: status %v, %q, %v", file, status, text, err)
		}
	}
}

func TestCollectRefusals(t *testing.T) {
	own, member := credentials(t)
	plain, secured, empty := collectServe(t, results(t), nil), collectServe(t, results(t), own), collectServe(t, t.TempDir(), nil)
	damaged := results(t)
	if err := os.Truncate(filepath.Join(damaged, "monday", archive.ResultFile), 10); err != nil {
		t.Fatal(err)
	}
	broken := collectServe(t, damaged, nil)
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "monday"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	for _, tc := range []struct {
		name string
		ctx  context.Context
		o    remote.Collecting
		want string
		is   error
	}{
		{"none there", t.Context(), remote.Collecting{From: "127.0.0.1:1"}, "127.0.0.1:1 cannot be reached", lab.ErrCannot},
		{"no results", t.Context(), remote.Collecting{From: empty.Addr()}, "has no results yet", lab.ErrCannot},
		{"plain and TLS", t.Context(), remote.Collecting{From: secured.Addr()}, "only one side has certificates", lab.ErrCannot},
		{"TLS and plain", t.Context(), remote.Collecting{From: plain.Addr(), Credentials: own}, "cannot be reached", lab.ErrCannot},
		{"a member", t.Context(), remote.Collecting{From: secured.Addr(), Credentials: member}, "does not name a load", lab.ErrCannot},
		{"a file blocks it", t.Context(), remote.Collecting{From: plain.Addr(), Out: full}, "is no run that could be replaced", lab.ErrCannot},
		{"damaged there", t.Context(), remote.Collecting{From: broken.Addr()}, "monday: ", archive.ErrDamaged},
		{"interrupted", ended, remote.Collecting{From: plain.Addr()}, "enough", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.o.Out == "" {
				tc.o.Out = t.TempDir()
			}
			tc.o.Say = func(string, ...any) {}
			_, err := remote.Collect(tc.ctx, tc.o)
			if err == nil || !strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
	for _, tc := range []struct {
		o    remote.ResultServing
		out  string
		want string
	}{
		{remote.ResultServing{Serve: "127.0.0.1:0", ServeFor: time.Second}, "", "Serve: there is nothing to serve"},
		{remote.ResultServing{Serve: ":7003", ServeFor: time.Second}, "out", "Serve: :7003 can be reached from other machines"},
		{remote.ResultServing{Serve: "127.0.0.1:0"}, "out", "ServeFor: 0s is not between"},
	} {
		if err := tc.o.Validate(tc.out, false); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
}

// Results that are never collected end the wait, with the place where they are.
func TestNotCollected(t *testing.T) {
	dir := results(t)
	s, err := remote.ServeResults(remote.ResultServing{Serve: "127.0.0.1:0", ServeFor: time.Millisecond}, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Await(t.Context()); err == nil || !strings.Contains(err.Error(), "they are in "+dir) {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
