package ops

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// addresses are a map of members to addresses as a setting: 1=127.0.0.1:7001,2=127.0.0.1:7002.
type addresses map[uint64]string

func (a *addresses) String() string {
	if a == nil {
		return ""
	}
	items := make([]string, 0, len(*a))
	for _, id := range slices.Sorted(maps.Keys(*a)) {
		items = append(items, strconv.FormatUint(id, 10)+"="+(*a)[id])
	}
	return strings.Join(items, ",")
}

// Get is for flag.Getter.
func (a *addresses) Get() any { return map[uint64]string(*a) }

// maxMembers bounds a list of addresses.
const maxMembers = 1024

func (a *addresses) Set(list string) error {
	*a = nil
	if list == "" {
		return nil
	}
	if n := strings.Count(list, ",") + 1; n > maxMembers {
		return fmt.Errorf("%d addresses, at most %d are taken", n, maxMembers)
	}
	read := addresses{}
	for item := range strings.SplitSeq(list, ",") {
		number, address, found := strings.Cut(strings.TrimSpace(item), "=")
		id, err := strconv.ParseUint(number, 10, 64)
		if !found || err != nil || id == 0 || read[id] != "" {
			return fmt.Errorf("%.80q: want number=address with a number above 0, each number once, with commas between them", item)
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("member %d: want host:port: %w", id, err)
		}
		read[id] = address
	}
	*a = read
	return nil
}
