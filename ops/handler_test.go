package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/snapshot"
)

// counterMachine is the state machine of these tests.
type counterMachine struct{ n int64 }

func (c *counterMachine) Apply(batch []millrace.Command[int64], results []int64) error {
	for i := range batch {
		if batch[i].Value < 0 {
			panic("a number below 0")
		}
		c.n += batch[i].Value
		results[i] = c.n
	}
	return nil
}

func (c *counterMachine) Snapshot() (millrace.Snapshot, error) {
	return millrace.BytesSnapshot(fmt.Appendf(nil, "%d", c.n)), nil
}

func (c *counterMachine) Restore(_ context.Context, r io.Reader) error {
	_, err := fmt.Fscan(r, &c.n)
	return err
}

func openNode(t *testing.T, members map[uint64]string) *millrace.Node[int64, int64] {
	t.Helper()
	c := millrace.Config{ID: 1, Dir: filepath.Join(t.TempDir(), "1"), Members: members, Listen: "127.0.0.1:0", StageTimes: true, HeartbeatInterval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	node, err := millrace.Open(t.Context(), c, millrace.InMemory(&counterMachine{}, millrace.Binary[int64]()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return node
}

// alone are the members of a cluster of one.
func alone() map[uint64]string { return map[uint64]string{1: "127.0.0.1:0"} }

// site is a Handler on loopback.
type site struct {
	t *testing.T
	*Handler
	url string
}

func newSite(t *testing.T, node Node, o Options) *site {
	t.Helper()
	h, err := NewHandler(node, o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return &site{t, h, server.URL}
}

// get returns the status and the body of a page; headers are names and values.
func (s *site) get(path string, headers ...string) (int, string) {
	s.t.Helper()
	return s.do(http.MethodGet, path, headers...)
}

func (s *site) do(method, path string, headers ...string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return w.StatusCode, string(body)
}

// becomes asks for a page until it has a status.
func (s *site) becomes(path string, code int) string {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		have, body := s.get(path)
		if have == code {
			return body
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s is still %d, want %d:\n%s", path, have, code, body)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// A node alone becomes ready, and all its pages say what they should.
func TestPages(t *testing.T) {
	node := openNode(t, alone())
	own := prometheus.NewCounter(prometheus.CounterOpts{Name: "my_program_things_total", Help: "Things."})
	s := newSite(t, node, Options{Pprof: true, Collectors: []prometheus.Collector{own}})
	s.becomes("/readyz", http.StatusOK)
	for i := range int64(5) {
		if _, err := node.Propose(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		path, accept string
		code         int
		want         []string
	}{
		{"/livez", "", 200, []string{"ok"}},
		{"/readyz", "", 200, []string{"ready"}},
		{"/readyz?verbose", "", 200, []string{"group: ok\n", "founded: ok\n", "leader: ok\n", "caught-up: ok\n", "ready\n"}},
		{"/readyz?verbose=true", "", 200, []string{"machine: ok\n"}},
		{"/explain", "", 200, []string{"group 1, seen from host 1: healthy", "leads in term"}},
		{"/explain?format=text", "application/json", 200, []string{"healthy"}},
		{"/explain?format=json", "", 200, []string{`"healthy": true`, `"role": "leader"`, `"causes": []`}},
		{"/explain", "text/html, application/json;q=0.9", 200, []string{`"healthy": true`}},
		{"/members", "", 200, []string{`"cluster": "`, `"role": "voter"`, `"addr": "127.0.0.1:0"`, `"removed": []`}},
		{"/members?format=text", "", 200, []string{"leader 1", "1  voter  heard  127.0.0.1:0"}},
		{"/members", "text/plain", 200, []string{"leader 1"}},
		{"/metrics", "", 200, []string{`millrace_group_leads{group="1",host="1"} 1`, `millrace_group_outcomes_total{group="1",host="1",outcome="committed"} 5`, `millrace_group_command_seconds_count{group="1",host="1",stage="applied"} 5`, `millrace_group_command_seconds_bucket{group="1",host="1",stage="committed",le="+Inf"} 5`, `millrace_group_command_seconds_count{group="1",host="1",stage="replicated"} 0`, `millrace_group_read_seconds_count{group="1",host="1"} `, "go_goroutines", "process_", "my_program_things_total 0"}},
		{"/debug/pprof/", "", 200, []string{"goroutine"}},
		{"/debug/pprof/goroutine?debug=1", "", 200, []string{"goroutine profile"}},
	} {
		var headers []string
		if c.accept != "" {
			headers = []string{"Accept", c.accept}
		}
		code, body := s.get(c.path, headers...)
		if code != c.code {
			t.Errorf("%s is %d, want %d: %s", c.path, code, c.code, body)
		}
		for _, want := range c.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %q:\n%.2000s", c.path, want, body)
			}
		}
		if strings.Contains(c.path, "json") && !json.Valid([]byte(body)) {
			t.Errorf("%s is no JSON: %s", c.path, body)
		}
	}
	_, text := s.get("/metrics")
	if n := len(samples(t, text)); n < 150 {
		t.Errorf("a parser of Prometheus reads %d series", n)
	}
	if code, body := s.do(http.MethodHead, "/readyz"); code != 200 || body != "" {
		t.Errorf("HEAD /readyz is %d %q", code, body)
	}
	s.Stop()
	if code, body := s.get("/readyz"); code != 503 || !strings.Contains(body, "not-stopping: the process is stopping\n") {
		t.Errorf("/readyz of a process that stops is %d: %s", code, body)
	}
}

// Each bad request has a status and a sentence.
func TestBadRequests(t *testing.T) {
	s := newSite(t, openNode(t, alone()), Options{})
	for _, row := range badInput(t, "page") {
		method, path, _ := strings.Cut(row.input, " ")
		if code, body := s.do(method, path); code != row.status || !strings.Contains(body, row.want) {
			t.Errorf("line %d: %s is %d %q, want %d %q", row.line, row.input, code, body, row.status, row.want)
		}
	}
	for _, name := range []string{"millrace_groups", "go_goroutines"} {
		twice := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "Twice."})
		if _, err := NewHandler(s.node, Options{Collectors: []prometheus.Collector{twice}}); err == nil || !strings.Contains(err.Error(), "Options.Collectors[0]") {
			t.Errorf("a series %s of the program: %v", name, err)
		}
	}
}

// A node that waits for others is alive, and not ready, with the reasons.
func TestNotReady(t *testing.T) {
	s := newSite(t, openNode(t, map[uint64]string{1: "127.0.0.1:1", 2: "127.0.0.1:2", 3: "127.0.0.1:3"}), Options{})
	code, body := s.get("/readyz")
	for _, want := range []string{"not-stopping: ok\n", "founded: the group is not founded", "leader: no leader is known", "caught-up: ", "\nnot ready\n"} {
		if code != 503 || !strings.Contains(body, want) {
			t.Errorf("/readyz is %d and lacks %q:\n%s", code, want, body)
		}
	}
	if code, body := s.get("/livez"); code != 200 {
		t.Errorf("/livez is %d: %s", code, body)
	}
	if _, text := s.get("/metrics"); samples(t, text)["millrace_group_founded group=1 host=1"] != 0 {
		t.Error("the group is founded, as its series say")
	}
}

// The program's own reason counts, and one that has stopped is not alive.
func TestReasons(t *testing.T) {
	node := openNode(t, alone())
	var reason error
	s := newSite(t, node, Options{Ready: func() error { return reason }})
	s.becomes("/readyz", 200)
	reason = errors.New("the cache is cold")
	if code, body := s.get("/readyz"); code != 503 || !strings.Contains(body, "program: the cache is cold\n") {
		t.Errorf("/readyz is %d: %s", code, body)
	}
	reason = nil
	if _, err := node.Propose(t.Context(), -1); err == nil {
		t.Fatal("a poison command was applied")
	}
	if body := s.becomes("/readyz", 503); !strings.Contains(body, "machine: ") || !strings.Contains(body, "a number below 0") {
		t.Errorf("/readyz of a halted machine: %s", body)
	}
	if code, body := s.get("/livez"); code != 200 {
		t.Errorf("/livez of a halted machine is %d: a start would not help: %s", code, body)
	}
	if code, body := s.get("/explain?format=json"); code != 503 || !strings.Contains(body, `"code": "machine halted"`) {
		t.Errorf("/explain is %d: %s", code, body)
	}
	if err := node.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code, body := s.get("/livez"); code != 503 || !strings.Contains(body, "the group has stopped here") {
		t.Errorf("/livez of a closed node is %d: %s", code, body)
	}
	if code, body := s.get("/metrics"); code != 200 {
		t.Errorf("/metrics of a closed node is %d: %s", code, body)
	}
}

// A backup has everything that was acknowledged, and a failed one is no whole answer.
func TestBackup(t *testing.T) {
	node := openNode(t, alone())
	s := newSite(t, node, Options{})
	for range 7 {
		if _, err := node.Propose(t.Context(), 6); err != nil {
			t.Fatal(err)
		}
	}
	code, archive := s.get("/backup")
	if code != 200 || len(archive) == 0 {
		t.Fatalf("/backup is %d, of %d bytes", code, len(archive))
	}
	readArchive(t, archive)
	s.backups <- struct{}{}
	if code, body := s.get("/backup"); code != 429 || !strings.Contains(body, "another backup") {
		t.Errorf("a second backup is %d: %s", code, body)
	}
	<-s.backups
	if err := node.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/backup", "/backup?local"} {
		if code, body := s.get(path); code != 503 || !strings.Contains(body, "closed") && !strings.Contains(body, "stopped") {
			t.Errorf("%s of a closed node is %d: %s", path, code, body)
		}
	}
}

// readArchive reads an archive to its end, and compares its sums.
func readArchive(t *testing.T, archive string) {
	t.Helper()
	a, err := snapshot.OpenArchive(strings.NewReader(archive))
	for err == nil {
		_, _, _, err = a.Next()
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// failingExport is a node whose backup breaks after its first bytes.
type failingExport struct{ Node }

func (f failingExport) Export(_ context.Context, w io.Writer) (i millrace.SnapshotInfo, err error) {
	if _, err = io.WriteString(w, "half of an archive"); err == nil {
		err = errors.New("the disk has gone")
	}
	return i, err
}

func TestBrokenBackup(t *testing.T) {
	s := newSite(t, failingExport{openNode(t, alone())}, Options{})
	w, err := http.Get(s.url + "/backup?local")
	if err == nil {
		defer w.Body.Close()
		_, err = io.ReadAll(w.Body)
	}
	if err == nil {
		t.Error("half of an archive is a whole answer")
	}
}
