package conformance

import (
	"reflect"
	"unsafe"

	theirraft "go.etcd.io/raft/v3"
)

// setTheirElectionTimeout does for upstream's node what RawNode.SetElectionTimeout does for ours. Upstream has it in a
// test of its own package only, out of reach, so it is done by name, which panics if the field is called otherwise.
func setTheirElectionTimeout(node *theirraft.RawNode, ticks int) {
	protocol := reflect.ValueOf(node).Elem().FieldByName("raft").Elem()
	timeout := protocol.FieldByName("randomizedElectionTimeout")
	reflect.NewAt(timeout.Type(), unsafe.Pointer(timeout.UnsafeAddr())).Elem().SetInt(int64(ticks))
}
