package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/internal/scratch"
)

// hosts are the hosts of a test, in this process.
type hosts struct {
	t       *testing.T
	options []options
	end     []func()
}

// startHosts runs n hosts. Without other flags a file may have 100,000 bytes.
func startHosts(t *testing.T, n int, flags ...string) *hosts {
	t.Helper()
	var peers, clients []string
	for id := 1; id <= n; id++ {
		peers = append(peers, fmt.Sprintf("%d=%s", id, scratch.Address(t)))
		clients = append(clients, fmt.Sprintf("%d=%s", id, scratch.Address(t)))
	}
	h := &hosts{t: t, end: make([]func(), n)}
	for id := 1; id <= n; id++ {
		o, err := parse(append([]string{"-id", strconv.Itoa(id), "-dir", filepath.Join(t.TempDir(), "host"), "-max-bytes", "100000",
			"-members", strings.Join(peers, ","), "-client-addresses", strings.Join(clients, ",")}, flags...), nil)
		if err != nil {
			t.Fatal(err)
		}
		o.Config.HeartbeatInterval = 10 * time.Millisecond
		h.options = append(h.options, o)
	}
	for i := range n {
		h.launch(i)
	}
	for i := range n {
		h.awaitAnswer(i)
	}
	return h
}

// start starts a host, in the directory that it has had, and waits until it answers.
func (h *hosts) start(i int) {
	h.t.Helper()
	h.launch(i)
	h.awaitAnswer(i)
}

func (h *hosts) launch(i int) {
	ctx, cancel := context.WithCancel(h.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, h.options[i]) }()
	h.end[i] = func() {
		h.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			h.t.Errorf("run returned %v after its context ended, want nil", err)
		}
		h.end[i] = func() {}
	}
	h.t.Cleanup(func() { h.end[i]() })
}

func (h *hosts) awaitAnswer(i int) {
	h.t.Helper()
	h.eventually(func() error {
		if a := h.send(i, "GET", "/", ""); a.code != http.StatusOK {
			return fmt.Errorf("host %d: status %d: %s", i+1, a.code, a.body)
		}
		return nil
	})
}

// eventually polls until done returns nil.
func (h *hosts) eventually(done func() error) {
	h.t.Helper()
	late, again := time.After(30*time.Second), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for {
		err := done()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-late:
			h.t.Fatal(err)
		}
	}
}

// answer is what a client gets.
type answer struct {
	code   int
	body   string
	header http.Header
}

// send sends a request to a host, with headers given as "Name: value". Code 0 means that there was no answer.
func (h *hosts) send(i int, method, path, body string, headers ...string) answer {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, "http://"+h.options[i].address()+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{0, err.Error(), nil}
	}
	defer w.Body.Close()
	b, err := io.ReadAll(w.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return answer{w.StatusCode, string(b), w.Header}
}

// expect sends a request, and wants a code and a part of the body.
func (h *hosts) expect(code int, part string, i int, method, path, body string, headers ...string) answer {
	h.t.Helper()
	a := h.send(i, method, path, body, headers...)
	if a.code != code || !strings.Contains(a.body, part) {
		h.t.Errorf("%s %.60s %q: status %d: %.100s, want %d: %.100s", method, path, headers, a.code, a.body, code, part)
	}
	return a
}

// objects returns the names of the objects on the disk of a host.
func (h *hosts) objects(i int) []string {
	h.t.Helper()
	entries, err := os.ReadDir(filepath.Join(h.options[i].Config.Dir, "groups", "1", "objects"))
	if err != nil {
		h.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// pattern returns n bytes of a pattern that differs from block to block.
func pattern(n int, seed byte) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>8) ^ byte(i) ^ seed
	}
	return string(b)
}

// A host alone answers every kind of request, and says what it refuses.
func TestRequests(t *testing.T) {
	h := startHosts(t, 1)
	large := pattern(100_000, 1)
	h.expect(200, "[]\n", 0, "GET", "/", "")
	h.expect(404, "no file", 0, "GET", "/a", "")
	h.expect(404, "no file", 0, "DELETE", "/a", "")
	h.expect(201, "", 0, "PUT", "/a", "one")
	first := h.expect(200, "one", 0, "GET", "/a", "").header.Get("ETag")
	second := h.expect(200, "", 0, "PUT", "/a", "three").header.Get("ETag")
	if first == second || len(first) != 66 {
		t.Errorf("the ETags of two contents are %s and %s", first, second)
	}
	h.expect(201, "", 0, "PUT", "/b/c d", large)
	h.expect(201, "", 0, "PUT", "/empty", "")
	h.expect(200, "", 0, "GET", "/empty", "")
	h.expect(200, `[{"name":"a","bytes":5,"etag":`, 0, "GET", "/", "")
	h.expect(200, `{"name":"b/c d","bytes":100000`, 0, "GET", "/?stale", "")

	h.expect(200, "three", 0, "GET", "/a?stale", "")
	h.expect(304, "", 0, "GET", "/a", "", "If-None-Match: "+second)
	h.expect(412, "", 0, "GET", "/a", "", "If-Match: "+first)
	h.expect(416, "", 0, "GET", "/a", "", "Range: bytes=5-")
	for _, c := range []struct {
		header string
		lo, hi int
	}{{"bytes=0-0", 0, 1}, {"bytes=65530-65545", 65_530, 65_546}, {"bytes=-7", 99_993, 100_000}, {"bytes=1-", 1, 100_000}} {
		a := h.send(0, "GET", "/b/c%20d", "", "Range: "+c.header)
		if a.code != http.StatusPartialContent || a.body != large[c.lo:c.hi] {
			t.Errorf("%s: status %d, %d bytes that differ, want [%d, %d)", c.header, a.code, len(a.body), c.lo, c.hi)
		}
	}
	if a := h.send(0, "HEAD", "/b/c%20d", ""); a.code != http.StatusOK || a.header.Get("Content-Length") != "100000" || a.header.Get("ETag") == "" {
		t.Errorf("HEAD: status %d, %v", a.code, a.header)
	}

	h.expect(413, "the file has 100001 bytes, at most 100000 are allowed", 0, "PUT", "/large", large+"x")
	h.expect(400, "the name has 1025 bytes, want 1 to 1024", 0, "PUT", "/"+strings.Repeat("n", 1025), "x")
	h.expect(400, "the name has 0 bytes", 0, "PUT", "/", "x")
	h.expect(404, "no file", 0, "GET", "/large", "")

	h.expect(204, "", 0, "DELETE", "/a", "")
	h.expect(404, "no file", 0, "GET", "/a", "")
	h.end[0]()
}

// A put whose length is not announced and too large, or that is broken off, leaves nothing: no name, and no
// bytes on the disk.
func TestBrokenPuts(t *testing.T) {
	h := startHosts(t, 1)
	r, _ := http.NewRequestWithContext(t.Context(), "PUT", "http://"+h.options[0].address()+"/a", io.LimitReader(rand.NewChaCha8([32]byte{}), 200_000))
	w, err := http.DefaultClient.Do(r)
	if err != nil || w.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("200,000 bytes in chunks: %v, %v, want status 413", w, err)
	}
	for _, half := range []bool{false, true} { // the client is gone, or ends what it sends and waits for an answer
		c, err := net.Dial("tcp", h.options[0].address())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n%s", pattern(50_000, 1))
		h.eventually(func() error {
			if len(h.objects(0)) == 0 {
				return errors.New("the put is not under way")
			}
			return nil
		})
		if half {
			_ = c.(*net.TCPConn).CloseWrite()
			if text, err := io.ReadAll(c); !strings.Contains(string(text), "400 Bad Request") || !strings.Contains(string(text), "not arrive whole") {
				t.Errorf("a body that ends early: %s, %v, want status 400", text, err)
			}
		}
		c.Close()
		h.eventually(func() error {
			if left := h.objects(0); len(left) > 0 {
				return fmt.Errorf("after a put that was broken off the disk has %v", left)
			}
			return nil
		})
	}
	h.expect(200, "[]", 0, "GET", "/", "")
}

// A restart keeps everything, and so does a restart from a snapshot; what no name refers to goes.
func TestRestarts(t *testing.T) {
	h := startHosts(t, 1, "-life", "1s")
	want := map[string]string{}
	put := func(name, content string) {
		t.Helper()
		want[name] = content
		if a := h.send(0, "PUT", "/"+name, content); a.code != http.StatusCreated && a.code != http.StatusOK {
			t.Errorf("PUT %s: status %d: %s", name, a.code, a.body)
		}
	}
	all := func() {
		t.Helper()
		for name, content := range want {
			if a := h.send(0, "GET", "/"+name, ""); a.code != http.StatusOK || a.body != content {
				t.Errorf("GET %s: status %d, %d bytes, want %d that were put", name, a.code, len(a.body), len(content))
			}
		}
		var list []listed
		if err := json.Unmarshal([]byte(h.send(0, "GET", "/", "").body), &list); err != nil || len(list) != len(want) {
			t.Errorf("the list is %v (%v), want %d files", list, err, len(want))
		}
	}
	put("a", "first")
	put("b", pattern(70_000, 2))
	put("a", pattern(90_000, 3))
	put("gone", "x")
	h.expect(204, "", 0, "DELETE", "/gone", "")
	delete(want, "gone")
	all()
	h.end[0]()
	h.start(0)
	all()

	// From here on each command makes the log long enough for a snapshot, and the log keeps nothing behind it.
	h.end[0]()
	h.options[0].Config.Snapshots = millrace.SnapshotPolicy{LogBytes: 1, KeepBytes: 1}
	h.start(0)
	snapshots := filepath.Join(h.options[0].Config.Dir, "groups", "1", "snapshots")
	put("c", "more")
	h.eventually(func() error {
		h.expect(404, "", 0, "DELETE", "/none", "") // a command, so that log time passes and a snapshot is due
		if have := h.objects(0); len(have) != len(want) {
			return fmt.Errorf("the disk has %d objects, want only those of %d files", len(have), len(want))
		}
		return nil
	})
	all()
	h.end[0]()
	if taken, err := os.ReadDir(snapshots); err != nil || len(taken) == 0 {
		t.Fatalf("no snapshot was taken: %v", err)
	}
	h.start(0)
	put("d", "after the snapshot")
	all()
}

// A host whose disk has too little space left says so.
func TestNoSpace(t *testing.T) {
	h := startHosts(t, 1, "-reserve", fmt.Sprint(int64(1)<<62))
	h.expect(507, "make room", 0, "PUT", "/a", "x")
	h.expect(404, "no file", 0, "GET", "/a", "")
}

// What one host has stored every host has, when it has answered; also one that was away meanwhile.
func TestThree(t *testing.T) {
	h := startHosts(t, 3)
	content := pattern(100_000, 4)
	for i := range 3 {
		h.expect(201, "", i, "PUT", fmt.Sprintf("/from-%d", i), content)
	}
	for i := range 3 {
		for k := range 3 {
			h.expect(200, content, i, "GET", fmt.Sprintf("/from-%d", k), "")
		}
	}
	h.end[2]()
	h.expect(200, "", 0, "PUT", "/from-0", "replaced")
	h.expect(204, "", 1, "DELETE", "/from-1", "")
	h.start(2)
	h.expect(200, "replaced", 2, "GET", "/from-0", "")
	h.expect(404, "", 2, "GET", "/from-1", "")
}

// A member whose file is damaged says 503 until it has it again from another one.
func TestDamaged(t *testing.T) {
	h := startHosts(t, 3)
	content := pattern(100_000, 5)
	h.expect(201, "", 0, "PUT", "/a", content)
	h.expect(200, content, 1, "GET", "/a", "")
	h.end[1]()
	objects := filepath.Join(h.options[1].Config.Dir, "groups", "1", "objects")
	if err := os.RemoveAll(filepath.Join(objects, h.objects(1)[0])); err != nil {
		t.Fatal(err)
	}
	h.start(1)
	h.eventually(func() error {
		a := h.send(1, "GET", "/a?stale", "")
		if a.code == http.StatusServiceUnavailable && a.header.Get("Retry-After") == "" {
			t.Errorf("status %d without Retry-After: %s", a.code, a.body)
		}
		if a.code != http.StatusOK || a.body != content {
			return fmt.Errorf("status %d: %.100s", a.code, a.body)
		}
		return nil
	})
}

// What is wrong with a setting is said in a sentence that names it.
func TestSettings(t *testing.T) {
	const good = "-id 1 -dir d -members 1=127.0.0.1:7001 -client-addresses 1=127.0.0.1:8001"
	for _, c := range []struct{ args, want string }{
		{good, ""},
		{good + " more", `"more" is no setting`},
		{good + " -max-bytes 0", "max-bytes is 0, want 1 to 137438953472"},
		{good + " -life 1ms", "life is 1ms, want 1s to 720h0m0s"},
		{good + " -client-addresses 2=127.0.0.1:8002", "Config.ClientAddrs has an entry for 2"},
		{good + " -client-addresses 1=10.0.0.1:8001", "10.0.0.1:8001 is not a loopback address"},
		{good + " -client-addresses 1=10.0.0.1:8001 -public", ""},
	} {
		_, err := parse(strings.Fields(c.args), nil)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s:\n%v, want %q", c.args, err, c.want)
		}
	}
}
