package ops

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestMetricsHaveEtcdsNames compares each series of etcd_ with the list of etcd 3.7.3: the name and the type.
func TestMetricsHaveEtcdsNames(t *testing.T) {
	b, err := os.ReadFile("testdata/etcd-3.7-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		name, kind, _ := strings.Cut(line, " ")
		theirs[name] = kind
	}
	m := NewMetrics(7, "3.7.3", "3.7.0", false, func() Sample { return Sample{QuotaBytes: 1, SyncTimes: []uint64{1, 2}} })
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	lines := bufio.NewScanner(w.Body)
	found := 0
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) != 4 || f[1] != "TYPE" || !strings.HasPrefix(f[2], "etcd_") {
			continue
		}
		if found++; theirs[f[2]] != f[3] {
			t.Errorf("%s is a %s, and etcd's is %q", f[2], f[3], theirs[f[2]])
		}
	}
	if found < 20 {
		t.Errorf("%d series", found)
	}
}

// TestNoQuotaNoSeries holds that alerts on the share of the quota stay silent if there is no quota.
func TestNoQuotaNoSeries(t *testing.T) {
	m := NewMetrics(7, "3.7.3", "3.7.0", false, func() Sample { return Sample{} })
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if strings.Contains(w.Body.String(), "quota_backend_bytes") {
		t.Error("a quota of 0 is told: a division by it is infinite")
	}
}

func TestHealth(t *testing.T) {
	var alarms []*pb.AlarmMember
	var read error
	leader, learner, ending := uint64(1), false, false
	m := Member{
		Version: "3.7.3", ClusterVersion: "3.7.0", Timeout: time.Second,
		Leader: func() uint64 { return leader }, Learner: func() bool { return learner }, Ending: func() bool { return ending },
		Alarms: func() []*pb.AlarmMember { return alarms },
		Read: func(_ context.Context, serializable bool) error {
			if serializable {
				return nil
			}
			return read
		},
	}
	h := Pages(m, http.NotFoundHandler(), false)
	check := func(path string, status int, want string) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != status || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %d %s", path, w.Code, w.Body, status, want)
		}
	}
	check("/health", 200, `{"health":"true","reason":""}`)
	check("/version", 200, `{"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0"}`)
	check("/debug/pprof/", 404, "")
	read = errors.New("no quorum")
	check("/health", 503, `{"health":"false","reason":"RANGE ERROR:no quorum"}`)
	check("/health?serializable=true", 200, `"true"`)
	check("/readyz", 503, "[-]linearizable_read failed: no quorum")
	check("/readyz?exclude=linearizable_read", 200, "ok")
	check("/livez", 200, "ok")
	leader = 0
	check("/health", 503, "RAFT NO LEADER")
	leader, read = 1, nil
	alarms = []*pb.AlarmMember{{Alarm: pb.AlarmType_NOSPACE}}
	check("/health", 503, "ALARM NOSPACE")
	check("/health?exclude=NOSPACE", 200, `"true"`)
	check("/readyz", 200, "ok")
	alarms = []*pb.AlarmMember{{Alarm: pb.AlarmType_CORRUPT}}
	check("/readyz/data_corruption", 503, "CORRUPT")
	alarms, learner = nil, true
	check("/readyz", 503, "[-]non_learner")
	learner, ending = false, true
	check("/readyz", 503, "[-]not_stopping failed: the server stops")
	check("/livez", 200, "ok")
}
