package history

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Clients of examples/files. The history has the beginning of a file's SHA-256 in place of the file, and no
// two puts have the same content. Names are of three kinds:
//
//	hot-…   a few at a time, which all clients replace and get
//	kept-…  put once
//	temp-…  put and deleted; they are not in the history, in which a delete says what it finds

const (
	fileClients  = 6
	minFileBytes = 64 << 10
	maxFileBytes = 4 << 20
	hotNames     = 4
	putsPerName  = 25 // about
	// fileTimeout is how long a client waits for an answer. What comes later is unknown to it.
	fileTimeout = 20 * time.Second
)

// filesRun is three processes of examples/files, their clients, and what was counted.
type filesRun struct {
	*cluster
	seed     uint64
	random   *rand.Rand // of the test's goroutine
	http     *http.Client
	began    time.Time
	recorder Recorder
	running  sync.WaitGroup
	stopped  atomic.Bool
	puts     atomic.Int64 // of hot names

	acked, refused, unknown, gets, deleted atomic.Int64

	// Owned by the test's goroutine.
	kills, hits      int // hits were in the middle of an upload
	broken, underWay int // uploads from clients, at the moments of the kills: on the killed host, on all
	partial, whole   int // objects on the disks after kills

	mu         sync.Mutex
	underWayOn map[*process]int // uploads from clients
}

func (k *filesRun) startClients() {
	for id := range fileClients {
		k.running.Go(func() { k.client(id) })
	}
}

func (k *filesRun) stop() {
	k.stopped.Store(true)
	k.running.Wait()
}

func (k *filesRun) client(id int) {
	random := rand.New(rand.NewPCG(k.seed, uint64(id)+2))
	for n := 0; !k.stopped.Load(); n++ {
		hot := fmt.Sprintf("hot-%d-%d", k.puts.Load()/(hotNames*putsPerName), random.IntN(hotNames))
		switch what := random.IntN(20); {
		case what < 8:
			k.get(k.hosts[random.IntN(3)], id, hot)
		case what < 16:
			k.puts.Add(1)
			k.record(k.put(random, id, n, hot))
		case what < 17:
			k.record(k.put(random, id, n, fmt.Sprintf("kept-%d-%d", id, n)))
		default:
			name := fmt.Sprintf("temp-%d-%d", id, n)
			k.put(random, id, n, name)
			if k.deleteName(k.hosts[random.IntN(3)], name) == nil {
				k.deleted.Add(1)
			}
		}
		<-time.After(time.Duration(random.IntN(10)) * time.Millisecond)
	}
}

func (k *filesRun) record(o Operation) {
	k.recorder.Add(o)
	switch o.Outcome {
	case Answered:
		k.acked.Add(1)
	case Refused:
		k.refused.Add(1)
	default:
		k.unknown.Add(1)
	}
}

// fingerprint is what the history has in place of a content.
func fingerprint(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:8])
}

// put puts a content of its own under a name, on any host.
func (k *filesRun) put(random *rand.Rand, id, n int, name string) Operation {
	var key [32]byte
	for i, word := range []uint64{k.seed, uint64(id), uint64(n), uint64(len(name))} {
		binary.LittleEndian.PutUint64(key[8*i:], word)
	}
	body := make([]byte, minFileBytes<<random.IntN(6)+random.IntN(minFileBytes))
	body = body[:min(len(body), maxFileBytes)]
	_, _ = rand.NewChaCha8(key).Read(body)
	p := k.hosts[random.IntN(len(k.hosts))]
	o := Operation{Client: id, Key: name, Kind: Put, Value: fingerprint(body), Call: time.Since(k.began)}
	k.count(p, 1)
	code, _, err := k.ask(p, http.MethodPut, name, body)
	k.count(p, -1)
	o.Return, o.Outcome = time.Since(k.began), outcomeOf(code, err)
	return o
}

// outcomeOf says what a client knows after an answer. examples/files says 503 and 507 if nothing was changed.
func outcomeOf(code int, err error) Outcome {
	dial := (*net.OpError)(nil)
	switch {
	case errors.As(err, &dial) && dial.Op == "dial", code == http.StatusServiceUnavailable, code == http.StatusInsufficientStorage:
		return Refused
	case err != nil || code >= 400 && code != http.StatusNotFound:
		return Unknown
	}
	return Answered
}

// get gets a file, and reports whether that was answered.
func (k *filesRun) get(p *process, id int, name string) bool {
	o := Operation{Client: id, Key: name, Kind: Get, Call: time.Since(k.began)}
	got, err := k.content(p, name, "")
	if o.Return = time.Since(k.began); err != nil {
		return false
	}
	o.Got, o.Outcome = got, Answered
	k.recorder.Add(o)
	k.gets.Add(1)
	return true
}

// content returns the fingerprint of what a host answers, or "" if it has no such file.
func (k *filesRun) content(p *process, name, query string) (string, error) {
	code, body, err := k.ask(p, http.MethodGet, name+query, nil)
	switch {
	case err != nil:
		return "", err
	case code == http.StatusNotFound:
		return "", nil
	case code != http.StatusOK:
		return "", fmt.Errorf("status %d: %.100s", code, body)
	}
	return fingerprint(body), nil
}

// deleteName deletes a name. One that is not there is no error.
func (k *filesRun) deleteName(p *process, name string) error {
	code, body, err := k.ask(p, http.MethodDelete, name, nil)
	if err == nil && code != http.StatusNoContent && code != http.StatusNotFound {
		err = fmt.Errorf("host %d: delete %s: status %d: %s", p.id, name, code, body)
	}
	return err
}

func (k *filesRun) ask(p *process, method, path string, body []byte) (code int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), fileTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, method, "http://"+p.address+"/"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	q.GetBody = nil // the client must not send a put twice by itself, which may then take effect twice
	w, err := k.http.Do(q)
	if err != nil {
		return 0, nil, err
	}
	defer w.Body.Close()
	answer, err = io.ReadAll(w.Body)
	return w.StatusCode, answer, err
}

func (k *filesRun) count(p *process, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.underWayOn[p] += n
}

// uploadsOn returns how many puts to some hosts have no answer yet.
func (k *filesRun) uploadsOn(hosts ...*process) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range hosts {
		n += k.underWayOn[p]
	}
	return n
}

// awaitAcks waits until n more puts are acknowledged.
func (k *filesRun) awaitAcks(t *testing.T, n int64) {
	t.Helper()
	was := k.acked.Load()
	eventually(t, fmt.Sprintf("%d more puts are acknowledged", n), func() error {
		if more := k.acked.Load() - was; more < n {
			return fmt.Errorf("%d are", more)
		}
		return nil
	})
}

// awaitOpen waits until all hosts answer linearizable reads.
func (k *filesRun) awaitOpen(t *testing.T) {
	t.Helper()
	for _, p := range k.hosts {
		eventually(t, fmt.Sprintf("host %d answers", p.id), func() error {
			_, err := k.content(p, "none", "")
			return err
		})
	}
}

// etags returns the hash of each object that has a name.
func (k *filesRun) etags(t *testing.T, p *process) map[string]string {
	t.Helper()
	all := map[string]string{}
	eventually(t, "the names are listed", func() error {
		code, body, err := k.ask(p, http.MethodGet, "", nil)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d: %s", code, body)
		}
		if err != nil {
			return err
		}
		var files []struct{ Name, ETag string }
		if err := json.Unmarshal(body, &files); err != nil {
			return err
		}
		for _, f := range files {
			all[f.Name] = strings.Trim(f.ETag, `"`)
		}
		return nil
	})
	return all
}

// deleteTemporary deletes the temp names that are left: their put or their delete was not answered.
func (k *filesRun) deleteTemporary(t *testing.T) {
	t.Helper()
	for name := range k.etags(t, k.hosts[0]) {
		if strings.HasPrefix(name, "temp-") {
			eventually(t, name+" is deleted", func() error { return k.deleteName(k.hosts[0], name) })
		}
	}
}

// readAll gets each name of the history, and returns those that have a content. These gets are in the
// history, so what was acknowledged is not missing if the history is linearizable: none of its names was
// deleted.
func (k *filesRun) readAll(t *testing.T) map[string]string {
	t.Helper()
	names := k.etags(t, k.hosts[0])
	for _, o := range k.recorder.History() {
		names[o.Key] = ""
	}
	want := map[string]string{}
	for name := range names {
		p := k.hosts[k.random.IntN(len(k.hosts))]
		eventually(t, name+" is read", func() error {
			if !k.get(p, fileClients, name) {
				return fmt.Errorf("host %d does not answer", p.id)
			}
			return nil
		})
		last := k.recorder.History()
		if got := last[len(last)-1].Got; got != "" {
			want[name] = got
		}
	}
	return want
}
