//go:build linux

package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// host is one process of the program, from one life to the next. The fault that holds its lock may start and
// end it; everything else only asks it.
type host struct {
	e     *episode
	id    int
	place int    // in the network: id, except of a second copy
	base  string // directory of its files
	dir   string // its data: in base, or on a small disk
	args  []string
	lock  sync.Mutex // for one fault at a time

	mu     sync.Mutex
	life   *life
	begins int64 // offset in its log at which the last life began
}

// life is one run of the process.
type life struct {
	number int
	cmd    *exec.Cmd
	ended  chan struct{}
	err    error // of Wait, when ended is closed
	wanted bool  // something has ended it, or wants it to end
}

func newHost(e *episode, id int) *host {
	base := filepath.Join(e.dir, strconv.Itoa(id))
	return &host{e: e, id: id, place: id, base: base, dir: filepath.Join(base, "data")}
}

func (h *host) logFile() string { return filepath.Join(h.base, "log") }

// start starts the process. It must run until something ends it.
func (h *host) start() error { return h.launch(false) }

// launch starts the process, below a tracer if its arguments are given. mayEnd says that it may end by
// itself.
func (h *host) launch(mayEnd bool, tracer ...string) error {
	if err := os.MkdirAll(h.elsewhere(), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(h.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 1
	if h.life != nil {
		n = h.life.number + 1
	}
	line := append(slices.Clone(tracer), append([]string{h.e.binary}, h.args...)...)
	fmt.Fprintf(file, "=== life %d: %s\n", n, strings.Join(line, " "))
	if h.begins, err = file.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	l := &life{number: n, cmd: exec.Command(line[0], line[1:]...), ended: make(chan struct{}), wanted: mayEnd}
	l.cmd.Stdout, l.cmd.Stderr = file, file
	l.cmd.Dir, l.cmd.Env = h.base, append(os.Environ(), "CHAOS_ELSEWHERE="+h.elsewhere())
	if err := theWorld.start(h.e.net.namespace(h.place), l.cmd); err != nil {
		return fmt.Errorf("start host %d: %w", h.id, err)
	}
	theWorld.note(l.cmd.Process.Pid, true)
	h.life = l
	go h.watch(l)
	return nil
}

// watch waits for the end of a life. One that nothing wanted fails the episode.
func (h *host) watch(l *life) {
	l.err = l.cmd.Wait()
	theWorld.note(l.cmd.Process.Pid, false)
	h.mu.Lock()
	wanted := l.wanted
	h.mu.Unlock()
	close(l.ended)
	if !wanted {
		h.e.fail(fmt.Errorf("host %d ended by itself in life %d: %v\n%s", h.id, l.number, l.err, h.tail()))
	}
}

// last returns the last life, nil if there was none.
func (h *host) last() *life {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life
}

// wantEnd says that the process may end from now on.
func (h *host) wantEnd() *life {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life != nil {
		h.life.wanted = true
	}
	return h.life
}

// isUp reports whether the process runs.
func (h *host) isUp() bool {
	l := h.last()
	if l == nil {
		return false
	}
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

// kill ends the process at once, if it runs.
func (h *host) kill() error {
	_, err := h.endBy(syscall.SIGKILL)
	return err
}

// terminate ends the process in good order. The error says that it did not end so.
func (h *host) terminate() error {
	l, err := h.endBy(syscall.SIGTERM)
	if err == nil && l != nil && l.err != nil && h.e.program.takesSignals(h) {
		err = fmt.Errorf("host %d ended with %v after SIGTERM, want status 0\n%s", h.id, l.err, h.tail())
	}
	return err
}

func (h *host) endBy(s syscall.Signal) (*life, error) {
	l := h.wantEnd()
	if l == nil {
		return nil, nil
	}
	if err := l.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return l, fmt.Errorf("host %d: %v: %w", h.id, s, err)
	}
	return l, h.waitEnd(fmt.Sprintf("after %v", s))
}

// waitEnd waits until the process has ended, by itself or not.
func (h *host) waitEnd(why string) error {
	l := h.wantEnd()
	select {
	case <-l.ended:
		return nil
	case <-time.After(maxWait):
		return fmt.Errorf("host %d still runs, %v %s\n%s", h.id, maxWait, why, h.tail())
	}
}

// signal sends a signal to a process that runs.
func (h *host) signal(s syscall.Signal) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.life.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("host %d: %v: %w", h.id, s, err)
	}
	return nil
}

// words returns what the process has logged in this life.
func (h *host) words() string {
	h.mu.Lock()
	begins := h.begins
	h.mu.Unlock()
	text, err := os.ReadFile(h.logFile())
	if err != nil || int64(len(text)) < begins {
		return ""
	}
	return string(text[begins:])
}

// says returns the first line of this life that has all words, or "".
func (h *host) says(words ...string) string {
	for line := range strings.Lines(h.words()) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func (h *host) tail() string {
	text := h.words()
	return text[max(0, len(text)-3000):]
}

// plain asks hosts without a part in the load. A paused host answers late.
var plain = &http.Client{Timeout: 3 * time.Second}

// status is the part of GET /status that the tests need.
type status struct {
	ID, Term, Leader, Applied, Committed uint64
	Cluster                              json.Number // a string, or a number as of before
	Keys                                 int
	Bytes                                int64
}

// status asks the process. The error says that it does not answer.
func (h *host) status() (s status, err error) { return h.e.program.status(h) }

func (h *host) ask(path string, to any) error {
	r, err := plain.Get("http://" + h.e.net.client(h.place) + path)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	return json.NewDecoder(r.Body).Decode(to)
}

// count returns a metric of the group or of the host, -1 if the process does not answer.
func (h *host) count(name string) int {
	r, err := plain.Get("http://" + h.e.net.client(h.place) + "/metrics")
	if err != nil {
		return -1
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "millrace_"+name+"{") {
			_, number, _ := strings.Cut(strings.TrimSpace(line), "} ")
			if n, err := strconv.ParseFloat(number, 64); err == nil {
				return int(n)
			}
		}
	}
	return -1
}

// maxWait is the longest wait for something that must happen while faults are under way.
const maxWait = 90 * time.Second

// eventually asks again and again until done returns nil. The error is done's last one after the bound, or
// says that the episode has failed meanwhile. Time in which the machine ran nothing does not count.
func (e *episode) eventually(within time.Duration, what string, done func() error) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for began, stood := time.Now(), e.stood.Load(); ; {
		err := done()
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-e.ctx.Done():
			return fmt.Errorf("the episode has failed while it waited until %s: %w", what, err)
		}
		if time.Since(began)-time.Duration(e.stood.Load()-stood) > within {
			return fmt.Errorf("waited %v until %s: %w", within, what, err)
		}
	}
}
