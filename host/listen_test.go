package host

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// An error of the address to listen on names the setting that the address is from, and what to set.
func TestListenErrorsNameTheSetting(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	busy := taken.Addr().String()
	_, port, _ := net.SplitHostPort(busy)
	for name, row := range map[string]struct {
		member, listen string
		is             error
		want           []string
	}{
		"its name is not known": {"pod.invalid:7001", "", nil,
			[]string{"millrace: host 1 cannot listen: Config.Listen is not set, so it listens on its address in Members, pod.invalid:7001: ", "; set Config.Listen, for instance to :7001"}},
		"its address is another machine's": {"192.0.2.10:7001", "", syscall.EADDRNOTAVAIL,
			[]string{"Config.Listen is not set, so it listens on its address in Members, 192.0.2.10:7001: ", "; set Config.Listen, for instance to :7001"}},
		"Listen is another machine's": {"127.0.0.1:7001", "192.0.2.10:7002", syscall.EADDRNOTAVAIL,
			[]string{"cannot listen: Config.Listen is 192.0.2.10:7002: ", "; change Config.Listen, for instance to :7002"}},
		"the address is taken": {busy, "", syscall.EADDRINUSE,
			[]string{"its address in Members, " + busy, "a host that still runs, has the address: stop it, or set Config.Listen"}},
		"Listen is taken": {"127.0.0.1:7001", ":" + port, syscall.EADDRINUSE,
			[]string{"Config.Listen is :" + port, "stop it, or change Config.Listen"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(t.Context(), Config{ID: 1, Dir: filepath.Join(t.TempDir(), "data"), Members: map[uint64]string{1: row.member}, Listen: row.listen})
			if err == nil {
				t.Fatal("it listens")
			}
			if row.is != nil && !errors.Is(err, row.is) {
				t.Errorf("%v is not %v", err, row.is)
			}
			for _, want := range row.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("have %q\nwant in it %q", err, want)
				}
			}
		})
	}
}
