package ops

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options say what a Handler serves.
type Options struct {
	// Pprof serves the profiles of the process at /debug/pprof/. They cost time while they are taken, and
	// show parts of what is in memory.
	Pprof bool
	// HostOnly leaves the series of groups out of /metrics. Hosts with thousands of groups need it.
	HostOnly bool
	// Collectors are the program's own series. A name that exists already is an error of NewHandler.
	Collectors []prometheus.Collector
	// Ready returns the program's own reason why it is not ready, or nil. It must return at once. Default:
	// there is none.
	Ready func() error
}

// Handler serves what monitoring and operators ask of one node:
//
//	/metrics            all series, for Prometheus
//	/livez              200 unless the process should be started again
//	/readyz             200 when this node should get requests; ?verbose lists the reasons
//	/explain            what is wrong, and what to do; 503 if anything is. ?format=json, or Accept
//	/members            who the members are. ?format=text, or Accept
//	/backup             an archive of the state, for millrace snapshot restore. ?local asks no quorum
//	/debug/pprof/       profiles, if Options.Pprof is set
//
// None of them but /backup waits for anything: they answer while the disk or the state machine hangs. No
// client is asked for a password, and /backup has all the data. Serve them where only operators come.
type Handler struct {
	node     Node
	options  Options
	mux      *http.ServeMux
	caughtUp catchUp
	stopping atomic.Bool
	backups  chan struct{} // has a token for each backup under way
}

// maxScrapeSeconds bounds a scrape: nothing in it waits, so more means that something hangs.
const maxScrapeSeconds = 10

// NewHandler returns the handler of a node.
func NewHandler(node Node, o Options) (*Handler, error) {
	h := &Handler{node: node, options: o, mux: http.NewServeMux(), backups: make(chan struct{}, 1)}
	h.caughtUp.group = node.Group()
	registry := prometheus.NewRegistry()
	all := append([]prometheus.Collector{
		NewCollector(node.Host(), o.HostOnly), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}, o.Collectors...)
	for i, c := range all {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("ops: Options.Collectors[%d]: %w", i-(len(all)-len(o.Collectors)), err)
		}
	}
	h.handle("/metrics", nil, promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: maxScrapeSeconds * time.Second, EnableOpenMetrics: true,
	}).ServeHTTP)
	h.handle("/livez", nil, h.livez)
	h.handle("/readyz", words{"verbose": {"", "true"}}, h.readyz)
	h.handle("/explain", words{"format": formats}, h.explain)
	h.handle("/members", words{"format": formats}, h.members)
	h.handle("/backup", words{"local": {"", "true"}}, h.backup)
	h.mux.HandleFunc("/", h.index)
	if o.Pprof {
		h.mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		h.mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		h.mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		h.mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		h.mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return h, nil
}

// ServeHTTP is for net/http.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Stop makes /readyz say from now on that the node is stopping. Run calls it.
func (h *Handler) Stop() { h.stopping.Store(true) }

// words are the parameters of a page, and the values that each may have.
type words map[string][]string

// formats are the values of format.
var formats = []string{"text", "json"}

// check returns what is wrong with the query of a request. A parameter that the page does not know would be
// a wish that is not met, and its client would not learn it.
func (w words) check(r *http.Request) error {
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		allowed, known := w[name]
		switch values := query[name]; {
		case !known && len(w) == 0:
			return fmt.Errorf("%s has the parameter %.40q, and takes none", r.URL.Path, name)
		case !known:
			return fmt.Errorf("%s has the parameter %.40q, want %s", r.URL.Path, name, strings.Join(slices.Sorted(maps.Keys(w)), " or "))
		case len(values) > 1:
			return fmt.Errorf("%s has the parameter %s %d times, want it once", r.URL.Path, name, len(values))
		case !slices.Contains(allowed, values[0]):
			return fmt.Errorf("%s has %s=%.40q, want %s", r.URL.Path, name, values[0], spelled(name, allowed))
		}
	}
	return nil
}

// spelled lists the values of a parameter as they are written.
func spelled(name string, values []string) string {
	all := make([]string, len(values))
	for i, v := range values {
		if all[i] = name + "=" + v; v == "" {
			all[i] = name
		}
	}
	return strings.Join(all, " or ")
}

// handle serves a page for GET and HEAD.
func (h *Handler) handle(path string, allowed words, page http.HandlerFunc) {
	h.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			refuse(w, http.StatusMethodNotAllowed, "%.20s %s: want GET or HEAD; this page changes nothing", r.Method, path)
			return
		}
		if err := allowed.check(r); err != nil {
			refuse(w, http.StatusBadRequest, "%v", err)
			return
		}
		page(w, r)
	})
}

// index answers for all other paths.
func (h *Handler) index(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/debug/pprof") {
		refuse(w, http.StatusNotFound, "%.80s: profiles are not served; the setting pprof allows them", r.URL.Path)
		return
	}
	refuse(w, http.StatusNotFound, "%.80q is no page; there are /metrics, /livez, /readyz, /explain, /members and /backup", r.URL.Path)
}

func refuse(w http.ResponseWriter, code int, format string, args ...any) {
	http.Error(w, fmt.Sprintf(format, args...), code)
}

// wantsJSON reports whether a page should be JSON: the query decides, then Accept, then what the page is
// otherwise.
func wantsJSON(r *http.Request, otherwise bool) bool {
	if format := r.URL.Query().Get("format"); format != "" {
		return format == "json"
	}
	for _, accepted := range r.Header.Values("Accept") {
		for kind := range strings.SplitSeq(accepted, ",") {
			switch name, _, _ := strings.Cut(kind, ";"); strings.TrimSpace(name) {
			case "application/json":
				return true
			case "text/plain":
				return false
			}
		}
	}
	return otherwise
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the client has gone
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprintln(w, strings.TrimRight(text, "\n"))
}
