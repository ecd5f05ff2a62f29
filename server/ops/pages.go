package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Member is what the pages ask of a member.
type Member struct {
	// Version is the version of etcd that is served, and ClusterVersion its minor version.
	Version, ClusterVersion string
	// Leader returns the id of the leader; 0 is none.
	Leader func() uint64
	// Learner reports whether the member has no vote.
	Learner func() bool
	// Alarms returns the alarms that are raised.
	Alarms func() []*pb.AlarmMember
	// Read makes a read: as this member has it, or linearizably.
	Read func(ctx context.Context, serializable bool) error
	// Ending reports whether the member is about to stop.
	Ending func() bool
	// Timeout bounds a read.
	Timeout time.Duration
}

// Pages returns the pages: /version, /health, /livez, /readyz, /metrics, and profiles if profiles is set.
func Pages(m Member, metrics http.Handler, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/version", getOnly(m.version))
	mux.Handle("/metrics", metrics)
	Health(m, mux)
	if profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// Health adds /health, /livez and /readyz to mux.
func Health(m Member, mux *http.ServeMux) {
	mux.Handle("/health", getOnly(m.health))
	live := []check{{"serializable_read", m.read(true)}}
	ready := []check{
		{"data_corruption", m.corruption}, {"serializable_read", m.read(true)}, {"linearizable_read", m.read(false)}, {"non_learner", m.voter},
	}
	addChecks(mux, "/livez", live)
	addChecks(mux, "/readyz", append(ready, check{"not_stopping", m.staying}))
}

func getOnly(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		h(w, r)
	})
}

func (m Member) version(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	b, _ := json.Marshal(struct {
		Server  string `json:"etcdserver"`
		Cluster string `json:"etcdcluster"`
		Storage string `json:"storage"`
	}{m.Version, m.ClusterVersion, m.ClusterVersion})
	_, _ = w.Write(b)
}

// health is etcd's oldest page about health: alarms, a leader, and a read.
func (m Member) health(w http.ResponseWriter, r *http.Request) {
	serializable := r.URL.Query().Get("serializable") == "true"
	reason := m.unhealthy(r.Context(), r.URL.Query()["exclude"], serializable)
	b, _ := json.Marshal(struct {
		Health string `json:"health"`
		Reason string `json:"reason"`
	}{fmt.Sprint(reason == ""), reason})
	if reason != "" {
		http.Error(w, string(b), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write(b)
}

func (m Member) unhealthy(ctx context.Context, exclude []string, serializable bool) (reason string) {
	excluded := map[string]bool{}
	for _, name := range exclude {
		excluded[name] = true
	}
	for _, a := range m.Alarms() {
		if !excluded[a.Alarm.String()] {
			return "ALARM " + a.Alarm.String()
		}
	}
	if !serializable && m.Leader() == 0 {
		return "RAFT NO LEADER"
	}
	if err := m.read(serializable)(ctx); err != nil {
		return "RANGE ERROR:" + err.Error()
	}
	return ""
}

// check is one line of /livez or /readyz.
type check struct {
	name string
	run  func(context.Context) error
}

func addChecks(mux *http.ServeMux, path string, checks []check) {
	mux.Handle(path, getOnly(func(w http.ResponseWriter, r *http.Request) {
		excluded := map[string]bool{}
		for _, name := range r.URL.Query()["exclude"] {
			excluded[name] = true
		}
		var chosen []check
		for _, c := range checks {
			if !excluded[c.name] {
				chosen = append(chosen, c)
			}
		}
		runChecks(w, r, chosen)
	}))
	for _, c := range checks {
		mux.Handle(path+"/"+c.name, getOnly(func(w http.ResponseWriter, r *http.Request) { runChecks(w, r, []check{c}) }))
	}
}

func runChecks(w http.ResponseWriter, r *http.Request, checks []check) {
	var lines strings.Builder
	failed := false
	for _, c := range checks {
		if err := c.run(r.Context()); err != nil {
			failed = true
			fmt.Fprintf(&lines, "[-]%s failed: %v\n", c.name, err)
		} else {
			fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
		}
	}
	if failed {
		http.Error(w, lines.String(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.URL.Query().Has("verbose") {
		fmt.Fprint(w, lines.String())
	}
	fmt.Fprint(w, "ok\n")
}

func (m Member) read(serializable bool) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, m.Timeout)
		defer cancel()
		return m.Read(ctx, serializable)
	}
}

func (m Member) corruption(context.Context) error {
	for _, a := range m.Alarms() {
		if a.Alarm == pb.AlarmType_CORRUPT {
			return fmt.Errorf("alarm activated: %s", a.Alarm)
		}
	}
	return nil
}

func (m Member) voter(context.Context) error {
	if m.Learner() {
		return fmt.Errorf("the server is a learner")
	}
	return nil
}

func (m Member) staying(context.Context) error {
	if m.Ending() {
		return fmt.Errorf("the server stops")
	}
	return nil
}
