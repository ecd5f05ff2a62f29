package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// profiles are profiles of all members during one measurement: of the processor, and of the heap at its end.
// Both systems serve them below /debug/pprof/ of their client address.
type profiles struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup
	mu     sync.Mutex
	err    error // guarded by mu
}

// startProfiles begins profiles after a pause. Each is a file in dir.
func (c *cluster) startProfiles(ctx context.Context, dir string, l Load, after, length time.Duration) *profiles {
	ctx, cancel := context.WithCancel(ctx)
	p := &profiles{cancel: cancel}
	for i, endpoint := range c.endpoints {
		p.ended.Go(func() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(after):
			}
			file := filepath.Join(dir, fmt.Sprintf("%s-%s-%d-m%d", c.Name, l.Kind, l.Clients, i+1))
			err := saveProfile(ctx, endpoint, fmt.Sprintf("profile?seconds=%d", max(length/time.Second, 1)), file+".cpu.pprof")
			if err == nil {
				err = saveProfile(ctx, endpoint, "heap", file+".heap.pprof")
			}
			if err != nil {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.err = errors.Join(p.err, fmt.Errorf("profile of %s: %w", endpoint, err))
			}
		})
	}
	return p
}

// end waits for them. An interrupt ends them, too.
func (p *profiles) end() error {
	p.ended.Wait()
	p.cancel()
	return p.err
}

func saveProfile(ctx context.Context, endpoint, what, file string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/debug/pprof/%s", endpoint, what), nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the member answers %s", answer.Status)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, answer.Body)
	return errors.Join(err, f.Close())
}
