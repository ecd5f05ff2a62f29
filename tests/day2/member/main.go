// Command member is the program of a new user: one member of a replicated ledger, with HTTP for its clients.
// It uses the face only (package millrace), as a stranger would.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "member:", err)
		os.Exit(1)
	}
}

// config reads the flags.
func config(l *ledger) (c millrace.Config, web string, err error) {
	tls := &millrace.TLS{}
	flag.Uint64Var(&c.ID, "id", 0, "this member's `number` in -members")
	flag.StringVar(&c.Dir, "dir", "", "its `directory`, which may be relative")
	members := flag.String("members", "", "`addresses` of the members: 1=127.0.0.1:7001,2=...")
	flag.StringVar(&web, "http", "", "the `address` for clients")
	flag.StringVar(&c.JoinToken, "token", "", "the join token with which this member comes")
	flag.StringVar(&tls.CertFile, "cert", "", "`file` with its certificate")
	flag.StringVar(&tls.KeyFile, "key", "", "`file` with the key of -cert")
	flag.StringVar(&tls.CAFile, "ca", "", "`file` with the CAs")
	flag.Int64Var(&c.MemoryBytes, "memory", 0, "Config.MemoryBytes, in `bytes`")
	flag.Int64Var(&c.Snapshots.LogBytes, "snapshot-bytes", 0, "`bytes` of log between two snapshots")
	flag.Int64Var(&c.Snapshots.KeepBytes, "keep-bytes", 0, "`bytes` of log that stay behind a snapshot")
	flag.DurationVar(&c.HeartbeatInterval, "heartbeat", 50*time.Millisecond, "`time` between heartbeats")
	flag.Int64Var(&l.pad, "pad", 0, "`bytes` that a snapshot has beside the balances")
	flag.Parse()
	if tls.CertFile != "" {
		c.TLS = tls
	}
	c.AdminSocket = true
	c.Members = map[uint64]string{}
	for _, member := range strings.Split(*members, ",") {
		id, addr, _ := strings.Cut(member, "=")
		n, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			return c, web, fmt.Errorf("-members: %q, want ID=HOST:PORT", member)
		}
		c.Members[n] = addr
	}
	return c, web, nil
}

func run(ctx context.Context) error {
	l := &ledger{balances: map[string]int64{}}
	c, address, err := config(l)
	if err != nil {
		return err
	}
	c.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	node, err := millrace.Open(ctx, c, millrace.InMemory(l, millrace.JSON[entry]()).Results(millrace.Binary[int64]()))
	if err != nil {
		return err
	}
	s := &service{node: node, ledger: l}
	web := &http.Server{Addr: address, Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- web.ListenAndServe() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
	case <-node.Failed():
		err = node.Err()
	}
	answers, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if web.Shutdown(answers) != nil {
		_ = web.Close() // a client that is too slow
	}
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, node.Close(end))
}

// service answers clients.
type service struct {
	node   *millrace.Node[entry, int64]
	ledger *ledger
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /session", func(w http.ResponseWriter, r *http.Request) {
		if err := s.node.View(r.Context(), millrace.Linearizable, func(millrace.ReadAt) error { return nil }); err != nil {
			refuse(w, err)
			return
		}
		fmt.Fprint(w, s.node.NewSession().ID())
	})
	mux.HandleFunc("POST /add", s.add)
	mux.HandleFunc("GET /balance", s.balance)
	mux.HandleFunc("GET /explain", s.explain)
	mux.HandleFunc("POST /snapshot", func(w http.ResponseWriter, r *http.Request) {
		info, err := s.node.TakeSnapshot(r.Context())
		if err != nil {
			refuse(w, err)
			return
		}
		fmt.Fprint(w, info.Index)
	})
	mux.HandleFunc("POST /chdir", func(w http.ResponseWriter, r *http.Request) {
		if err := os.Chdir(r.FormValue("dir")); err != nil {
			refuse(w, err)
		}
	})
	mux.HandleFunc("POST /delay", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.FormValue("delay"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.ledger.delay.Store(int64(d))
	})
	mux.HandleFunc("GET /goroutines", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, runtime.NumGoroutine()) })
	return mux
}

// add adds to an account: client and number make it count once, however often it is sent, and to whom.
func (s *service) add(w http.ResponseWriter, r *http.Request) {
	timeout := 3 * time.Second
	if d, err := time.ParseDuration(r.FormValue("timeout")); err == nil {
		timeout = d
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	amount, err := strconv.ParseInt(r.FormValue("amount"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e := entry{Account: r.FormValue("account"), Amount: amount}
	if n, _ := strconv.Atoi(r.FormValue("note")); n > 0 {
		e.Note = strings.Repeat("n", n)
	}
	var options []millrace.ProposeOption
	if text := r.FormValue("client"); text != "" {
		var id millrace.SessionID
		number, err := strconv.ParseUint(r.FormValue("number"), 10, 64)
		if err == nil {
			err = id.UnmarshalText([]byte(text))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		options = append(options, millrace.InSession(millrace.SessionMark{Session: id, Number: number}))
	}
	balance, err := s.node.Propose(ctx, e, options...)
	if err != nil {
		refuse(w, err)
		return
	}
	fmt.Fprint(w, balance)
}

func (s *service) balance(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
	defer cancel()
	var n int64
	err := s.node.ViewExclusive(ctx, millrace.Linearizable, func() error { n = s.ledger.balances[r.FormValue("account")]; return nil })
	if err != nil {
		refuse(w, err)
		return
	}
	fmt.Fprint(w, n)
}

// answer is what GET /explain returns.
type answer struct {
	Healthy bool
	Role    string
	Leader  uint64
	Causes  []string
	Text    string
}

func (s *service) explain(w http.ResponseWriter, _ *http.Request) {
	d := s.node.Explain()
	a := answer{Healthy: d.Healthy, Role: d.Status.Role.String(), Leader: d.Status.Leader, Text: d.String()}
	for _, c := range d.Causes {
		a.Causes = append(a.Causes, fmt.Sprintf("%s (%d): %s", c.Code, c.Member, c.Evidence))
	}
	_ = json.NewEncoder(w).Encode(a)
}

func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("May-Have-Committed", strconv.FormatBool(millrace.MayHaveCommitted(err)))
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}
