package compat

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/millrace/millrace/server"
	"github.com/millrace/millrace/server/config"
)

// side is one of the two services.
type side struct {
	name string
	addr string
	conn *grpc.ClientConn
	cl   *clientv3.Client
	// ended is closed when the process of the side has ended. It is nil for a member of this process.
	ended chan struct{}
}

// endsNow reports whether the process of the side ends, which takes a moment after its connections.
func (s *side) endsNow() bool {
	if s.ended == nil {
		return false
	}
	select {
	case <-s.ended:
		return true
	case <-time.After(toEnd):
		return false
	}
}

// toEnd is how long a process may take to end when its connections are gone.
const toEnd = 2 * time.Second

func binary(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("%s names no program", variable)
	}
	return path
}

func port(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// both starts etcd and this service, each with one new member.
func both(t *testing.T, flags ...string) []*side {
	t.Helper()
	return []*side{etcd(t, binary(t, "MILLRACE_TEST_ETCD"), flags...), millrace(t, flags...)}
}

// args are the flags of one member of a cluster.
func (s *side) args(t *testing.T, name, peer, initial string, flags []string) []string {
	return append([]string{
		"--name=" + name, "--data-dir=" + t.TempDir(), "--listen-client-urls=http://" + s.addr, "--advertise-client-urls=http://" + s.addr,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + initial, "--log-level=error",
	}, flags...)
}

// etcd starts a process of etcd.
func etcd(t *testing.T, program string, flags ...string) *side {
	t.Helper()
	s := &side{name: "etcd", addr: port(t), ended: make(chan struct{})}
	peer := "http://" + port(t)
	cmd := exec.Command(program, s.args(t, "m", peer, "m="+peer, flags)...)
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(s.ended); _ = cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-s.ended })
	s.connect(t)
	return s
}

// millrace starts a member of this service in this process.
func millrace(t *testing.T, flags ...string) *side {
	t.Helper()
	return cluster(t, 1, flags...)[0]
}

// cluster starts members of this service in this process.
func cluster(t *testing.T, members int, flags ...string) (all []*side) {
	t.Helper()
	var names, peers, initial []string
	for k := range members {
		names, peers = append(names, "m"+strings.Repeat("m", k)), append(peers, "http://"+port(t))
		initial = append(initial, names[k]+"="+peers[k])
	}
	for k := range members {
		s := &side{name: "millrace, member " + names[k], addr: port(t)}
		s.start(t, s.args(t, names[k], peers[k], strings.Join(initial, ","), flags))
		all = append(all, s)
	}
	for _, s := range all {
		s.connect(t)
	}
	return all
}

// start starts a member of this service.
func (s *side) start(t *testing.T, args []string) {
	t.Helper()
	l, err := config.Load(args, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := server.Start(t.Context(), server.Config{Config: l.Config, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = m.Close(ctx)
	})
}

// connect waits until the member serves, and makes the clients.
func (s *side) connect(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		r, err := http.Get("http://" + s.addr + "/health")
		if err == nil {
			_ = r.Body.Close()
			if r.StatusCode == 200 {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not healthy within 20 s: %v", s.name, err)
		}
		<-time.After(20 * time.Millisecond)
	}
	var err error
	if s.conn, err = grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	if s.cl, err = clientv3.New(clientv3.Config{Endpoints: []string{s.addr}, Logger: zap.NewNop()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cl.Close(); _ = s.conn.Close() })
}

// normal takes out of an answer what differs by nature: ids, terms, times, sizes and addresses.
func (s *side) normal(text string) string {
	text = strings.ReplaceAll(text, s.addr, "ADDR")
	text = strings.ReplaceAll(text, "\u00a0", " ") // errors of protobuf have one or the other, by the build
	for _, r := range []struct{ pattern, with string }{
		{`(cluster_id|member_id|raft_term|ID|leader|clusterID|memberID)("?\s?:\s?)"?[0-9a-f]+"?`, `$1${2}N`},
		{`"(dbSize|dbSizeInUse|raftIndex|raftAppliedIndex|raftTerm|dbSizeQuota)":"[0-9]+"`, `"$1":N`},
		{`\b[0-9a-f]{12,16}\b`, "HEX"},
		{`"key":"bC[89][A-Za-z0-9+/=]+"`, `"key":LOCK`},
		{`\b[0-9]{17,20}\b`, "ID"},
		{`took = [0-9.µms]+`, "took = T"},
		{`took [0-9.µms]+`, "took T"},
		{`http://127.0.0.1:[0-9]+`, "http://PEER"},
		{`"ts":"[^"]*"`, `"ts":T`},
		{`"RaftTerm" : [0-9]+`, `"RaftTerm" : N`},
		{`"(dbSize|dbSizeInUse|raftIndex|raftAppliedIndex|raftTerm)":[0-9]+`, `"$1":N`},
		{`remaining\([0-9]+s\)`, "remaining(T)"},
		{`0x[0-9a-f]+/`, "0xPTR/"},
		{`LocalAddr: '[^']*'`, "LocalAddr: L"},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.with)
	}
	return text
}

// compact removes blanks outside of the strings of JSON: protojson adds some, which differ from build
// to build.
func compactJSON(b []byte) string {
	var out bytes.Buffer
	inside, escaped := false, false
	for _, c := range b {
		switch {
		case escaped:
			escaped = false
		case inside && c == '\\':
			escaped = true
		case c == '"':
			inside = !inside
		case !inside && c == ' ':
			continue
		}
		out.WriteByte(c)
	}
	return out.String()
}

// judge compares the answers of a row on both sides.
func judge(t *testing.T, row string, answers []string) {
	t.Helper()
	reason, known := differences[row]
	same := answers[0] == answers[1]
	switch {
	case same && known:
		t.Errorf("%s: the answers are equal now, and differences_test.go says: %s", row, reason)
	case !same && !known:
		t.Errorf("%s\n etcd:     %s\n millrace: %s", row, answers[0], answers[1])
	}
}

func (s *side) http(method, path, body string) string {
	r, err := http.NewRequest(method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	a, err := (&http.Client{Timeout: 15 * time.Second}).Do(r)
	if err != nil {
		return "no answer: " + s.normal(err.Error())
	}
	defer a.Body.Close()
	b, _ := io.ReadAll(a.Body)
	var head strings.Builder
	for _, h := range []string{"Content-Type", "Grpc-Metadata-Content-Type", "Access-Control-Allow-Origin", "Allow", "X-Content-Type-Options"} {
		if v := a.Header.Get(h); v != "" {
			fmt.Fprintf(&head, " %s=%s", h, v)
		}
	}
	return fmt.Sprintf("%d%s %s", a.StatusCode, head.String(), s.normal(compactJSON(b)))
}

// raw sends bytes and returns the first line that comes back.
func (s *side) raw(send string) string {
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_, _ = io.WriteString(c, send)
	_ = c.(*net.TCPConn).CloseWrite()
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	b, _ := io.ReadAll(c)
	if i := bytes.IndexByte(b, '\r'); i >= 0 && bytes.HasPrefix(b, []byte("HTTP")) {
		b = b[:i]
	}
	return fmt.Sprintf("%q", b)
}
