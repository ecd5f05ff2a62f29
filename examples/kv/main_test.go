package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/examples/kv/server"
	"github.com/millrace/millrace/internal/scratch"
)

// startHosts runs n hosts in this process and waits until they know their leader. The addresses are those for
// clients; end ends all hosts in good order.
func startHosts(t *testing.T, n int, flags ...string) (addresses []string, leader int, end func()) {
	t.Helper()
	var peers, clients []string
	for id := 1; id <= n; id++ {
		addresses = append(addresses, scratch.Address(t))
		peers = append(peers, fmt.Sprintf("%d=%s", id, scratch.Address(t)))
		clients = append(clients, fmt.Sprintf("%d=%s", id, addresses[id-1]))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, n)
	for id := 1; id <= n; id++ {
		o, err := server.Parse("kv", append([]string{"-id", strconv.Itoa(id), "-dir", t.TempDir(), "-heartbeat", "10ms",
			"-members", strings.Join(peers, ","), "-client-addresses", strings.Join(clients, ",")}, flags...), nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- server.Run(ctx, o, open) }()
	}
	running := n
	end = func() {
		cancel()
		for ; running > 0; running-- {
			if err := <-ended; err != nil {
				t.Errorf("run returned %v after its context ended, want nil", err)
			}
		}
	}
	t.Cleanup(end)
	for id, address := range addresses {
		eventually(t, "a leader is known", func() error {
			code, body, _ := send(t, http.MethodGet, address, "/status", "")
			var s server.Status
			if err := json.Unmarshal([]byte(body), &s); code != http.StatusOK || err != nil || s.Leader == 0 {
				return fmt.Errorf("host %d: status %d: %s (%v)", id+1, code, body, err)
			}
			leader = int(s.Leader) - 1
			return nil
		})
	}
	return addresses, leader, end
}

// noRedirect leaves a redirect to the test.
var noRedirect = &http.Client{
	Timeout:       30 * time.Second,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// send sends a request, with headers given as "Name: value". Status 0 means that there was no answer.
func send(t *testing.T, method, address, path, body string, headers ...string) (code int, text string, h http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	w, err := noRedirect.Do(r)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer w.Body.Close()
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.StatusCode, string(b), w.Header
}

// eventually polls until done returns nil.
func eventually(t *testing.T, what string, done func() error) {
	t.Helper()
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
			t.Fatalf("waited until %s: %v", what, err)
		}
	}
}

// A host alone answers every kind of request, and says what it refuses.
func TestRequests(t *testing.T) {
	addresses, _, end := startHosts(t, 1)
	const absent = "-"
	version := absent
	for _, c := range []struct {
		method, path, body string
		header             string // %v is the version of the last answer with one
		code               int
		want               string // a part of the answer's body
	}{
		{"GET", "/keys/a", "", "", 404, "no such key"},
		{"PUT", "/keys/a%2Fb", "", "", 200, ""},
		{"GET", "/keys/a%2Fb", "", "", 200, ""},
		{"PUT", "/keys/a", "one", "If-None-Match: *", 200, ""},
		{"GET", "/keys/a", "", "", 200, "one"},
		{"GET", "/keys/a?consistency=lease", "", "", 200, "one"},
		{"GET", "/keys/a?consistency=bounded&age=1s", "", "", 200, "one"},
		{"GET", "/keys/a?consistency=atleast&index=1", "", "", 200, "one"},
		{"GET", "/keys/a?consistency=local", "", "", 200, "one"},
		{"PUT", "/keys/a", "two", "If-None-Match: *", 412, "one"},
		{"PUT", "/keys/a", "two", `If-Match: "%v"`, 200, ""},
		{"PUT", "/keys/a", "three", `If-Match: "1"`, 412, "two"},
		{"PUT", "/keys/none", "three", `If-Match: "1"`, 412, ""},
		{"POST", "/keys/a/add", "", "", 409, "no decimal number"},
		{"DELETE", "/keys/a", "", `If-Match: "1"`, 412, "two"},
		{"DELETE", "/keys/a", "", `If-Match: "%v"`, 204, ""},
		{"DELETE", "/keys/a", "", "", 404, "no such key"},
		{"POST", "/keys/n/add", "", "", 200, "1"},
		{"POST", "/keys/n/add?by=-3", "", "", 200, "-2"},
		{"POST", "/keys/n/add?by=9223372036854775807", "", "", 200, "9223372036854775805"},
		{"POST", "/keys/n/add?by=3", "", "", 409, "or the sum would not be"},
		{"GET", "/keys/n", "", "", 200, "9223372036854775805"},

		{"PUT", "/keys/s", "x", "Idempotency-Key: x", 400, `Idempotency-Key: millrace: "x" is no mark of a session, want SESSION:NUMBER`},
		{"PUT", "/keys/s", "x", "Idempotency-Key: 00000000000000000000000000000001.0:0", 400, "is no mark of a session"},
		{"PUT", "/keys/s", "x", "Idempotency-Key: 00000000000000000000000000000001.0:1:2", 400, "is no mark of a session"},
		{"GET", "/metrics", "", "", 200, "\nmillrace_group_leads{"},
		{"GET", "/keys/a?consistency=eventual", "", "", 400, `consistency="eventual", want linearizable`},
		{"GET", "/keys/a?consistency=bounded", "", "", 400, `age=""`},
		{"GET", "/keys/a?consistency=atleast&index=x", "", "", 400, `index="x"`},
		{"PUT", "/keys/a", "x", "If-Match: x", 400, `If-Match is "x"`},
		{"PUT", "/keys/a", "x", "If-None-Match: x", 400, `If-None-Match is "x"`},
		{"POST", "/keys/n/add?by=x", "", "", 400, `by="x"`},
		{"PUT", "/keys/" + strings.Repeat("k", server.MaxKeyBytes+1), "", "", 413, "the key has 1025 bytes, at most 1024 are allowed"},
		{"PUT", "/keys/k", strings.Repeat("v", server.MaxValueBytes+1), "", 413, "the value has more than 1048576 bytes"},
		{"PUT", "/keys/" + strings.Repeat("k", server.MaxKeyBytes), strings.Repeat("v", server.MaxValueBytes), "", 200, ""},
	} {
		header := "X-None: x"
		if c.header != "" {
			header = strings.ReplaceAll(c.header, "%v", version)
		}
		code, body, h := send(t, c.method, addresses[0], c.path, c.body, header)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s %.60s %s: status %d: %.100s, want %d: %s", c.method, c.path, header, code, body, c.code, c.want)
		}
		if tag := h.Get("ETag"); tag != "" {
			version = strings.Trim(tag, `"`)
		}
	}
	// On a busy machine the host may say, rightly, that its process was paused.
	code, body, _ := send(t, http.MethodGet, addresses[0], "/explain", "")
	if healthy := code == http.StatusOK && strings.Contains(body, ": healthy"); !healthy && !(code == http.StatusServiceUnavailable && strings.Contains(body, "not healthy: process paused\n")) {
		t.Errorf("GET /explain: status %d: %s", code, body)
	}
	end()
}

// A key that was put for a while goes by itself, though no client sends a change.
func TestKeysGo(t *testing.T) {
	addresses, _, end := startHosts(t, 3)
	if code, body, _ := send(t, http.MethodPut, addresses[1], "/keys/a?ttl=200ms", "x"); code != http.StatusOK {
		t.Fatalf("status %d: %s", code, body)
	}
	for _, address := range addresses {
		eventually(t, "the key is gone", func() error {
			if code, body, _ := send(t, http.MethodGet, address, "/keys/a", ""); code != http.StatusNotFound {
				return fmt.Errorf("status %d: %s", code, body)
			}
			return nil
		})
	}
	end()
}

// A change of a session is applied once, whichever hosts get it, and each gets the first answer.
func TestSession(t *testing.T) {
	addresses, _, _ := startHosts(t, 3)
	code, id, _ := send(t, http.MethodPost, addresses[0], "/sessions", "")
	if code != http.StatusCreated {
		t.Fatalf("status %d: %s", code, id)
	}
	id = strings.TrimSpace(id)
	for number, lowest := range []string{"", ":1", ":2"} {
		key := fmt.Sprintf("Idempotency-Key: %s:%d%s", id, number+1, lowest)
		for _, address := range append(addresses, addresses...) {
			if code, body, _ := send(t, http.MethodPost, address, "/keys/n/add", "", key); code != http.StatusOK || body != strconv.Itoa(number+1) {
				t.Errorf("%s: status %d: %s, want the sum %d", key, code, body, number+1)
			}
		}
	}
	for _, address := range addresses {
		if code, body, _ := send(t, http.MethodGet, address, "/keys/n", ""); code != http.StatusOK || body != "3" {
			t.Errorf("status %d: %s, want 3", code, body)
		}
	}
}

// A follower forwards a change, or sends the client to the leader, as its flags say.
func TestFollower(t *testing.T) {
	for _, redirect := range []bool{false, true} {
		t.Run(fmt.Sprint("redirect=", redirect), func(t *testing.T) {
			addresses, leader, _ := startHosts(t, 3, fmt.Sprint("-redirect=", redirect))
			follower := addresses[(leader+1)%3]
			code, body, h := send(t, http.MethodPut, follower, "/keys/k", "v")
			location := "http://" + addresses[leader] + "/keys/k"
			switch {
			case redirect && (code != http.StatusTemporaryRedirect || h.Get("Location") != location || h.Get("Millrace-Outcome") != "none"):
				t.Errorf("status %d: %s, %v; want a redirect to %s", code, body, h, location)
			case redirect:
			case code != http.StatusOK:
				t.Errorf("status %d: %s", code, body)
			default:
				index := h.Get("Millrace-Index")
				for _, address := range addresses {
					for _, query := range []string{"", "?consistency=lease", "?consistency=atleast&index=" + index} {
						if code, body, _ := send(t, http.MethodGet, address, "/keys/k"+query, ""); code != http.StatusOK || body != "v" {
							t.Errorf("%s: status %d: %s", query, code, body)
						}
					}
				}
			}
		})
	}
}

// heldBody is the body of a request that the server has begun to read, and that ends when release is closed.
type heldBody struct {
	io.Reader
	once           sync.Once
	taken, release chan struct{}
}

func (b *heldBody) Read(p []byte) (int, error) {
	b.once.Do(func() { close(b.taken) })
	<-b.release
	return b.Reader.Read(p)
}

// At the end a request that was taken has its answer, and no other is taken.
func TestEndAnswersWhatWasTaken(t *testing.T) {
	addresses, _, end := startHosts(t, 1)
	body := &heldBody{Reader: strings.NewReader("value"), taken: make(chan struct{}), release: make(chan struct{})}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+addresses[0]+"/keys/a", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Expect", "100-continue") // the body is asked for by the handler that reads it
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute, DisableKeepAlives: true}}
	code := make(chan string, 1)
	go func() {
		w, err := client.Do(r)
		if err != nil {
			code <- err.Error()
			return
		}
		text, err := io.ReadAll(w.Body)
		code <- fmt.Sprintf("%d %s %v", w.StatusCode, text, errors.Join(err, w.Body.Close()))
	}()
	select {
	case <-body.taken:
	case have := <-code:
		t.Fatalf("the request was not taken: %s", have)
	}
	ended := make(chan struct{})
	go func() {
		end()
		close(ended)
	}()
	eventually(t, "no other request is taken", func() error {
		if c, err := net.Dial("tcp", addresses[0]); err == nil {
			return errors.Join(errors.New("it is taken"), c.Close())
		}
		return nil
	})
	close(body.release)
	if have := <-code; !strings.HasPrefix(have, "200 ") {
		t.Errorf("the request that was taken was answered with %s", have)
	}
	<-ended
}

// A signal that comes while the process starts ends it in good order, as later ones do.
func TestEndDuringTheStart(t *testing.T) {
	o, err := server.Parse("kv", []string{"-id", "1", "-dir", t.TempDir(), "-members", "1=127.0.0.1:0", "-client-addresses", "1=127.0.0.1:0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := server.Run(ctx, o, open); err != nil {
		t.Errorf("%v, want the end without an error", err)
	}
}

// A client sees each change once, on any host, and goes on at another host with the id of its last event.
func TestChangesComeOnceFromAnyHost(t *testing.T) {
	addresses, _, end := startHosts(t, 3)
	put := func(from, to int) {
		for i := from; i < to; i++ {
			if code, text, _ := send(t, http.MethodPut, addresses[i%3], fmt.Sprintf("/keys/k%d", i), fmt.Sprint("value ", i)); code != http.StatusOK {
				t.Fatal(code, text)
			}
		}
	}
	watch := func(host int, last string) (next func() (id, data string), leave func()) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addresses[host]+"/changes", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Last-Event-ID", last)
		answer, err := http.DefaultClient.Do(r)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatal(answer, err)
		}
		lines := bufio.NewScanner(answer.Body)
		return func() (id, data string) {
			for lines.Scan() {
				if text, is := strings.CutPrefix(lines.Text(), "id: "); is {
					id = text
				} else if text, is := strings.CutPrefix(lines.Text(), "data: "); is {
					return id, text
				}
			}
			return id, ""
		}, func() { _ = answer.Body.Close() }
	}
	put(0, 5)
	last := "0.0.0"
	for host := range 3 {
		next, leave := watch(host, last)
		for i := 5 * host; i < 5*host+5; i++ {
			id, data := next()
			if last = id; !strings.Contains(data, fmt.Sprintf("\"Key\":\"k%d\"", i)) {
				t.Fatalf("host %d: event %d is %q", host, i, data)
			}
		}
		leave()
		put(5*host+5, 5*host+10)
	}
	if code, text, _ := send(t, http.MethodGet, addresses[0], "/changes", "", "Last-Event-ID: what"); code != http.StatusBadRequest || !strings.Contains(text, "such as 17.0.2") {
		t.Error(code, text)
	}
	if code, text, _ := send(t, http.MethodGet, addresses[0], "/", ""); code != http.StatusOK || !strings.Contains(text, "EventSource") {
		t.Error(code, text)
	}
	next, leave := watch(1, last)
	defer leave()
	for range 5 {
		next()
	}
	end() // a client that watches holds no host up
	if _, data := next(); data != "" {
		t.Errorf("after the end: %q", data)
	}
}
