package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// usualClients is the closed loop that the last sentence prefers.
const usualClients = 100

// writeClosing ends the text with one sentence: how many writes, how soon, and what that is of the limit.
func (s *Session) writeClosing(b *strings.Builder) {
	text := s.closing()
	if len(s.Archive.Criteria) > 0 {
		counts := map[archive.Verdict]int{}
		for _, c := range s.Archive.Criteria {
			counts[c.Verdict]++
		}
		text += fmt.Sprintf("; of the criteria %d pass, %d fail, %d were not measured", counts[archive.Pass], counts[archive.Fail], counts[archive.NotMeasured])
		if n := counts[archive.Provisional]; n > 0 {
			text += fmt.Sprintf(", %d have a provisional limit", n)
		}
	}
	fmt.Fprintf(b, "\n%s.\n", text)
}

func (s *Session) closing() string {
	p := s.usualPoint()
	if p == nil {
		return "No closed loop of writes was measured, so there is no rate to compare with the machine"
	}
	rate, _ := p.Median(archive.OpsPerSec.Name)
	p99, _ := p.Median(archive.P99Us.Name)
	clients, _ := strconv.Atoi(p.Labels[archive.LabelClients])
	text := fmt.Sprintf("%s: %s writes/s at %s, p99 %s", p.Labels[archive.LabelPipeline], report.Count(rate), report.Plural(clients, "client"), report.Latency(p99))
	switch most := s.limit(p, clients); {
	case most > 0 && rate > most:
		return text + "; the probe of disk and network found less, so it was disturbed"
	case most > 0:
		return text + fmt.Sprintf(", %.2g of what this disk and network can do", rate/most)
	case s.Afar:
		return text + "; the disks and the network of the members were not measured here"
	}
	return text + "; what disk and network can do was not measured"
}

// usualPoint returns the closed loop of writes for the last sentence: on pipeline async if there is one, with
// as many clients as usual if there are, and the best of those.
func (s *Session) usualPoint() *archive.Point {
	var all []*archive.Point
	for i := range s.Archive.Points {
		p := &s.Archive.Points[i]
		clients, err := strconv.Atoi(p.Labels[archive.LabelClients])
		if rate, ok := p.Median(archive.OpsPerSec.Name); err == nil && clients > 0 && ok && rate > 0 && p.Labels[archive.LabelOperation] == Write && p.Labels[archive.LabelPipeline] != "" {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil
	}
	far := func(p *archive.Point) int {
		clients, _ := strconv.Atoi(p.Labels[archive.LabelClients])
		return max(clients-usualClients, usualClients-clients)
	}
	other := func(p *archive.Point) int {
		if p.Labels[archive.LabelPipeline] == "async" {
			return 0
		}
		return 1
	}
	return slices.MinFunc(all, func(a, c *archive.Point) int {
		ra, _ := a.Median(archive.OpsPerSec.Name)
		rc, _ := c.Median(archive.OpsPerSec.Name)
		return cmp.Or(cmp.Compare(other(a), other(c)), cmp.Compare(far(a), far(c)), cmp.Compare(rc, ra))
	})
}

// limit returns how many writes a second the machine can do at most, by the probe of this run: each client
// waits for an fsync and a round trip, and each host writes each value. 0: the probe has not measured that.
func (s *Session) limit(p *archive.Point, clients int) float64 {
	disk, network := s.Env.Load.Disk, s.Env.Load.Network
	hosts, _ := strconv.Atoi(p.Labels[archive.LabelNodes])
	bytes, _ := strconv.Atoi(p.Labels[archive.LabelValueBytes])
	if s.Afar || disk == nil || network == nil || hosts == 0 {
		return 0
	}
	fsync, _ := time.ParseDuration(p.Labels[archive.LabelFsyncDelay])
	oneWay, _ := time.ParseDuration(p.Labels[archive.LabelNetworkDelay])
	wait := disk.FsyncP50Us + float64(fsync.Microseconds())
	if hosts > 1 {
		wait += network.RTTP50Us + 2*float64(oneWay.Microseconds())
	}
	most := 1e6 * float64(clients) / wait
	if bytes > 0 && disk.WriteBytesSec > 0 {
		most = min(most, disk.WriteBytesSec/float64(hosts*bytes))
	}
	return most
}
