package front

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/tmc/grpc-websocket-proxy/wsproxy"
	"go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	election "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb/gw"
	lock "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb/gw"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
)

// newGateway makes the handler of /v3/: JSON in and out, by etcd's generated handlers, on a connection to the
// services of this process.
func newGateway(ctx context.Context, conn *grpc.ClientConn, logger *slog.Logger) (http.Handler, error) {
	mux := runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.HTTPBodyMarshaler{Marshaler: &runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
	}}))
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		gw.RegisterKVHandler, gw.RegisterWatchHandler, gw.RegisterLeaseHandler, gw.RegisterClusterHandler,
		gw.RegisterMaintenanceHandler, gw.RegisterAuthHandler, lock.RegisterLockHandler, election.RegisterElectionHandler,
	} {
		if err := register(ctx, mux, conn); err != nil {
			return nil, fmt.Errorf("the JSON gateway: %w", err)
		}
	}
	post := func(_, out *http.Request) *http.Request { out.Method = http.MethodPost; return out } // as the streams want it
	return wsproxy.WebsocketProxy(mux, wsproxy.WithRequestMutator(post), wsproxy.WithMaxRespBodyBufferSize(1<<31-1),
		wsproxy.WithLogger(wsLogger{logger})), nil
}

type wsLogger struct{ *slog.Logger }

func (l wsLogger) Warnln(args ...any) {
	l.Debug("websocket: " + strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}
func (l wsLogger) Debugln(args ...any) {}

// access checks where an HTTP request comes from before it is served.
type access struct {
	next      http.Handler
	cors      []string
	hosts     []string
	bodyBytes int64
	logger    *slog.Logger
}

func allowed(list []string, name string) bool {
	return len(list) == 0 || slices.Contains(list, "*") || slices.Contains(list, name)
}

func (a *access) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rest, ok := strings.CutPrefix(r.URL.Path, "/v3beta/"); ok {
		r.URL.Path = "/v3/" + rest // clients of etcd 3.3
	}
	if host := hostname(r); r.TLS == nil && !allowed(a.hosts, host) {
		a.logger.Warn("an HTTP request to an unknown host name is refused (DNS rebinding)", "host", host)
		http.Error(w, fmt.Sprintf("The host name %q of this request is not allowed here. Serve https, or add the name to --host-whitelist.\n"+
			"This keeps web pages of other sites from talking to a local server (DNS rebinding).", host), http.StatusMisdirectedRequest)
		return
	}
	origin := ""
	if allowed(a.cors, "*") {
		origin = "*"
	} else if o := r.Header.Get("Origin"); allowed(a.cors, o) {
		origin = o
	}
	if origin != "" {
		w.Header().Add("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE")
		w.Header().Add("Access-Control-Allow-Origin", origin)
		w.Header().Add("Access-Control-Allow-Headers", "accept, content-type, authorization")
	}
	if r.Method == http.MethodOptions {
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, a.bodyBytes)
	a.next.ServeHTTP(w, r)
}

// hostname returns the host that a request names, without its port.
func hostname(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		return host
	}
	return r.Host
}
