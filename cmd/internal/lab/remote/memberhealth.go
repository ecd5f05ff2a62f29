package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// health answers health checks over plain HTTP:
//
//	/livez    200 while the process serves
//	/readyz   200 when a leader is known in every group, else 503 with the reason
//
// They say nothing that is worth protecting.
type health struct {
	listener net.Listener
	server   *http.Server
	done     chan struct{}
}

const healthTimeout = 5 * time.Second

func serveHealth(addr string, ready func() error) (*health, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "the process serves") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "a leader is known in every group")
	})
	h := &health{listener: listener, done: make(chan struct{}), server: &http.Server{
		Handler: mux, ReadTimeout: healthTimeout, WriteTimeout: healthTimeout, IdleTimeout: healthTimeout, MaxHeaderBytes: 16 << 10,
	}}
	go func() {
		defer close(h.done)
		_ = h.server.Serve(listener) // it ends with close
	}()
	return h, nil
}

func (h *health) addr() string { return h.listener.Addr().String() }

func (h *health) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := h.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = h.server.Close()
	}
	<-h.done
	return err
}
