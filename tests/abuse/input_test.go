package abuse_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Bad input at the doors of real programs: their command line, environment, file and requests. One table has
// all of it, ../../ops/testdata/bad-input.txt, so a reader sees what each mistake is answered with. Here its
// rows go to processes of examples/kv and examples/queue. Package ops tries the same rows without a process.

const inputTable = "../../ops/testdata/bad-input.txt"

// minInputs is how many rows the table must have at least.
const minInputs = 100

// input is a row of the table.
type input struct {
	line        int
	where, what string
	status      int
	want        string
}

func inputs(t *testing.T) (all []input) {
	t.Helper()
	text, err := os.ReadFile(inputTable)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 4 {
			t.Fatalf("%s:%d: %d columns, want 4 with tabs between", inputTable, i+1, len(f))
		}
		status, err := strconv.Atoi(f[2])
		if err != nil || f[3] == "" && !strings.HasPrefix(f[1], "HEAD ") {
			t.Fatalf("%s:%d: the status is %q and the sentence %q, want a number and a part of the answer", inputTable, i+1, f[2], f[3])
		}
		all = append(all, input{i + 1, f[0], f[1], status, f[3]})
	}
	return all
}

// buildExample builds an example.
func buildExample(t *testing.T, name string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	build := exec.Command("go", "build", "-o", path, "./"+name)
	build.Dir = "../../examples"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", name, err, out)
	}
	return path
}

// panicked is what a Go program prints when it does not refuse in a sentence.
var panicked = regexp.MustCompile(`(?m)^(panic:|goroutine \d|fatal error:)`)

// TestBadInput gives each row of the table to a program.
func TestBadInput(t *testing.T) {
	all := inputs(t)
	if len(all) < minInputs {
		t.Errorf("%d rows, want %d at least", len(all), minInputs)
	}
	kv, queue := buildExample(t, "kv"), buildExample(t, "queue")
	doors := map[string]func(*testing.T, input){"flag": settings(t, kv)}
	doors["environment"], doors["file"] = doors["flag"], doors["flag"]
	kvClients, kvPages := serve(t, kv)
	queueClients, _ := serve(t, queue)
	doors["page"], doors["kv"], doors["queue"] = request(kvPages), request(kvClients), request(queueClients)
	tried := map[string]int{}
	for _, in := range all {
		door, found := doors[in.where]
		if !found {
			t.Fatalf("%s:%d: %q is no place of input", inputTable, in.line, in.where)
		}
		tried[in.where]++
		door(t, in)
	}
	t.Logf("%d rows: %v", len(all), tried)
}

// settings returns what starts the program with a row.
func settings(t *testing.T, program string) func(*testing.T, input) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large.yaml")
	if err := os.WriteFile(large, bytes.Repeat([]byte("# nothing\n"), 1<<20/10+1), 0o600); err != nil {
		t.Fatal(err)
	}
	one := "--id 1 --dir " + filepath.Join(dir, "none") + " --members 1=127.0.0.1:7001"
	fill := strings.NewReplacer("{one}", one, "{dir}", dir, "{large}", large, `\n`, "\n")
	return func(t *testing.T, in input) {
		what := fill.Replace(in.what)
		cmd := exec.Command(program, strings.Fields(one)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
		switch in.where {
		case "flag":
			cmd.Args = append([]string{program}, strings.Fields(what)...)
		case "environment":
			cmd.Env = append(cmd.Env, what)
		case "file":
			path := filepath.Join(dir, "settings.yaml")
			if err := os.WriteFile(path, []byte(what), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd.Args = append(cmd.Args, "--config", path)
		}
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr, cmd.Dir = &stdout, &stderr, dir
		err := cmd.Start()
		if err == nil {
			late := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait() // its status is looked at below
			late.Stop()
		}
		status, said := cmd.ProcessState.ExitCode(), stderr.String()
		lines := strings.Count(strings.TrimSpace(said), "\n") + 1
		if err != nil || status != in.status || !strings.Contains(said, in.want) || panicked.MatchString(said) || stdout.Len() > 0 || lines > 4 {
			t.Errorf("%s:%d: %s %s: status %d, want %d with %q (%v)\nstandard output: %s\nstandard error: %s", inputTable, in.line, in.where, in.what, status, in.status, in.want, err, &stdout, said)
		}
		if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
			t.Errorf("%s:%d: %s: a directory was made", inputTable, in.line, in.what)
		}
	}
}

// freeAddress returns an address at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// serve starts a program with one member, and waits until it is ready. At the end it must still run, without
// a panic in its log, and end in good order.
func serve(t *testing.T, program string) (clients, pages string) {
	t.Helper()
	clients, pages = freeAddress(t), freeAddress(t)
	var log lockedBuffer
	cmd := exec.Command(program, "--id", "1", "--dir", t.TempDir(), "--members", "1="+freeAddress(t), "--client-addresses", "1="+clients, "--ops", pages)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || panicked.MatchString(log.String()) || strings.Contains(log.String(), "panic serving") {
			t.Errorf("%s: %v\n%s", program, err, log.String())
		}
	})
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-again.C {
		if r, err := http.Get("http://" + pages + "/readyz"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return clients, pages
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready: %s", program, log.String())
		}
	}
}

var letters = regexp.MustCompile(`\{(\d+)\}`)

// request returns what sends a row to a server: METHOD PATH, then a header, or < and a body.
func request(address string) func(*testing.T, input) {
	return func(t *testing.T, in input) {
		what, body, _ := strings.Cut(in.what, " < ")
		what, body = fillLetters(what), fillLetters(body)
		method, rest, _ := strings.Cut(what, " ")
		path, header, _ := strings.Cut(rest, " ")
		status, said, err := send(address, method, path, header, body)
		lines := strings.Count(strings.TrimSpace(said), "\n") + 1
		if err != nil || status != in.status || !strings.Contains(said, in.want) || lines > 4 {
			t.Errorf("%s:%d: %s: status %d, want %d with %q (%v)\n%.400s", inputTable, in.line, in.what, status, in.status, in.want, err, said)
		}
	}
}

func fillLetters(text string) string {
	return letters.ReplaceAllStringFunc(text, func(of string) string {
		n, _ := strconv.Atoi(of[1 : len(of)-1]) // its digits
		return strings.Repeat("k", n)
	})
}

// send sends a request as it is: a client of net/http would refuse or change some.
func send(address, method, path, header, body string) (status int, said string, err error) {
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return 0, "", err
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: %d\r\n", method, path, address, len(body))
	if header != "" {
		head += header + "\r\n"
	}
	go func() { _, _ = io.WriteString(conn, head+"\r\n"+body) }() // the server may answer before it has read all
	r, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return r.StatusCode, string(b), err
}

// lockedBuffer is what a process writes, for readers of the test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
