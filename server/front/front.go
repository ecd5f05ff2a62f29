package front

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/test/bufconn"

	"github.com/millrace/millrace/server/answers"
	"github.com/millrace/millrace/server/config"
)

// Options are what the front serves.
type Options struct {
	// Register registers the services.
	Register func(grpc.ServiceRegistrar)
	// Pages serves every path outside /v3/, on all HTTP listeners.
	Pages http.Handler
	// Metrics serves the URLs of Config.ListenMetrics.
	Metrics http.Handler
	// Unary and Stream are called around each RPC, the first one outermost.
	Unary  []grpc.UnaryServerInterceptor
	Stream []grpc.StreamServerInterceptor
	// Answers bounds the answers that wait for their clients.
	Answers *answers.Budget
}

// overheadBytes is what a message may have beyond the bound of a request, as in etcd.
const overheadBytes = 512 << 10

// streamWorkers are goroutines that stay, so their stacks have the size that RPCs need. An RPC that finds
// none idle gets a goroutine of its own. Gets of 1,000 clients cost about 15 % less processor time than with
// 256 or none of them, and 10 MiB more.
const streamWorkers = 1024

// Bounds of HTTP/1.1.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	headerBytes   = http.DefaultMaxHeaderBytes // 1 MiB, as in etcd
)

// Front is the open front. After Open clients wait in the backlog of the listeners until Serve.
type Front struct {
	c         *config.Config
	logger    *slog.Logger
	grpc      *grpc.Server
	health    *health.Server
	http      *http.Server
	metrics   *http.Server
	inside    *bufconn.Listener // connections of this process
	sorters   []*sorter
	observers []net.Listener // for metrics
	grpcQueue *queue
	httpQueue *queue
	gateway   context.CancelFunc
	running   sync.WaitGroup
}

// Open listens on all URLs of the configuration.
func Open(c *config.Config, logger *slog.Logger) (f *Front, err error) {
	f = &Front{c: c, logger: logger, inside: bufconn.Listen(1 << 20), health: health.NewServer(), gateway: func() {}}
	f.SetServing(false)
	if err := f.listen(); err != nil {
		f.closeListeners()
		return nil, err
	}
	return f, nil
}

func newGRPC(c *config.Config, o Options) *grpc.Server {
	options := []grpc.ServerOption{
		grpc.Creds(arrived{}), grpc.ForceServerCodecV2(o.Answers.Codec()), grpc.ConnectionTimeout(firstBytesTimeout),
		grpc.MaxRecvMsgSize(c.MaxRequestBytes + overheadBytes), grpc.MaxSendMsgSize(math.MaxInt32), grpc.MaxConcurrentStreams(c.MaxStreams),
		grpc.ReadBufferSize(64 << 10), grpc.WriteBufferSize(64 << 10), grpc.NumStreamWorkers(streamWorkers),
		grpc.ChainUnaryInterceptor(o.Unary...), grpc.ChainStreamInterceptor(o.Stream...),
	}
	if k := c.KeepAlive; k.MinTime > 0 {
		options = append(options, grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: k.MinTime}))
	}
	if k := c.KeepAlive; k.Interval > 0 && k.Timeout > 0 {
		options = append(options, grpc.KeepaliveParams(keepalive.ServerParameters{Time: k.Interval, Timeout: k.Timeout}))
	}
	return grpc.NewServer(options...)
}

// listen opens a sorter for each URL of clients, and the listeners for metrics.
func (f *Front) listen() error {
	c := f.c
	var secured *reloader
	open := func(u *url.URL) (net.Listener, *reloader, error) {
		l, err := listen(u, c.ReusePort)
		if err != nil || !config.Secure(u) {
			return l, nil, err
		}
		if secured == nil {
			secured, err = newReloader(c.ClientTLS, f.logger)
		}
		if err != nil {
			_ = l.Close()
		}
		return l, secured, err
	}
	split := len(c.ListenHTTP) > 0
	for i, u := range append(append([]*url.URL{}, c.ListenClient...), c.ListenHTTP...) {
		l, secured, err := open(u)
		if err != nil {
			return fmt.Errorf("listen for clients on %s: %w", u, err)
		}
		if f.grpcQueue == nil {
			f.grpcQueue, f.httpQueue = newQueue(l.Addr()), newQueue(l.Addr())
		}
		s := &sorter{Listener: l, tls: secured, grpc: f.grpcQueue, http: f.httpQueue}
		if split && i < len(c.ListenClient) {
			s.http = nil
		} else if split {
			s.grpc = nil
		}
		f.sorters = append(f.sorters, s)
	}
	for _, u := range c.ListenMetrics {
		l, secured, err := open(u)
		if err != nil {
			return fmt.Errorf("listen for metrics on %s: %w", u, err)
		}
		if secured != nil {
			l = tlsListener{l, secured}
		}
		f.observers = append(f.observers, l)
	}
	return nil
}

// Dial returns a connection to the services in this process, which passes neither a socket nor TLS.
func (f *Front) Dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+f.c.Name, f.Inside()...)
}

// Inside are the options with which a client in this process dials the services.
func (f *Front) Inside() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return f.inside.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
	}
}

// Serve begins to serve, and returns at once. failed is called if a listener fails. It is called once.
func (f *Front) Serve(o Options, failed func(error)) error {
	f.grpc = newGRPC(f.c, o)
	o.Register(f.grpc)
	grpc_health_v1.RegisterHealthServer(f.grpc, f.health)
	reflection.Register(f.grpc)
	pages := http.NewServeMux()
	pages.Handle("/", o.Pages)
	if f.c.Gateway {
		conn, err := f.Dial()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		f.gateway = func() { cancel(); _ = conn.Close() }
		g, err := newGateway(ctx, conn, f.logger)
		if err != nil {
			f.gateway()
			return err
		}
		pages.Handle("/v3/", o.Answers.Handler(g))
	}
	f.http = f.newHTTP(&access{
		next: pages, cors: f.c.CORS, hosts: f.c.HostWhitelist, logger: f.logger,
		bodyBytes: 4*int64(f.c.MaxRequestBytes) + 1<<20, // base64 takes 4/3; what is too large is refused as a request
	})
	f.metrics = f.newHTTP(o.Metrics)
	run := func(what string, serve func() error) {
		f.running.Go(func() {
			err := serve()
			if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
				failed(fmt.Errorf("serve %s: %w", what, err))
			}
		})
	}
	run("this process", func() error { return f.grpc.Serve(f.inside) })
	run("gRPC", func() error { return f.grpc.Serve(f.grpcQueue) })
	run("HTTP", func() error { return f.http.Serve(f.httpQueue) })
	for _, s := range f.sorters {
		run(s.Addr().String(), s.serve)
	}
	for _, l := range f.observers {
		run("metrics", func() error { return f.metrics.Serve(l) })
	}
	return nil
}

func (f *Front) newHTTP(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes,
		ErrorLog: log.New(quiet{}, "", 0),
	}
}

// quiet drops what net/http says of clients that misbehave.
type quiet struct{}

func (quiet) Write(b []byte) (int, error) { return len(b), nil }

// Addrs returns where clients are served, in the order of the URLs.
func (f *Front) Addrs() (addrs []net.Addr) {
	for _, s := range f.sorters {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// MetricsAddrs returns where metrics are served.
func (f *Front) MetricsAddrs() (addrs []net.Addr) {
	for _, l := range f.observers {
		addrs = append(addrs, l.Addr())
	}
	return addrs
}

// SetServing says what the health service of gRPC answers.
func (f *Front) SetServing(yes bool) {
	s := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if yes {
		s = grpc_health_v1.HealthCheckResponse_SERVING
	}
	f.health.SetServingStatus("", s)
}

// Close takes no more connections, tells clients to go elsewhere (GOAWAY), and waits for requests under
// way until ctx ends. Streams must have been ended before.
func (f *Front) Close(ctx context.Context) {
	f.closeListeners()
	if f.http == nil { // it was never served
		return
	}
	var drained sync.WaitGroup
	drained.Go(func() {
		if f.http.Shutdown(ctx) != nil {
			_ = f.http.Close()
		}
		_ = f.metrics.Close()
	})
	drained.Go(func() {
		done := make(chan struct{})
		go func() { f.grpc.GracefulStop(); close(done) }()
		select {
		case <-done:
		case <-ctx.Done():
			f.grpc.Stop()
			<-done
		}
	})
	drained.Wait()
	f.gateway()
	f.running.Wait()
}

func (f *Front) closeListeners() {
	for _, s := range f.sorters {
		_ = s.Close()
	}
	for _, l := range f.observers {
		_ = l.Close()
	}
}
