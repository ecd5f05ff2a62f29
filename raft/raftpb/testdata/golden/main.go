// Command golden writes ../golden.tsv: values encoded by etcd-io/raft v3.6.0 itself. One line is one value:
//
//	type TAB hex of the encoding TAB the value as JSON under our field names
//
// It lives under testdata because upstream is no dependency of ours. To run it:
//
//	cp main.go "$(mktemp -d)"; cd there; go mod init golden; go get go.etcd.io/raft/v3@v3.6.0; go run . >golden.tsv
package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"

	pb "go.etcd.io/raft/v3/raftpb"
)

type marshaler interface{ Marshal() ([]byte, error) }

func main() {
	entry := pb.Entry{Term: 3, Index: 300, Type: pb.EntryConfChangeV2, Data: []byte("data")}
	conf := pb.ConfState{Voters: []uint64{1, 2, 300}, Learners: []uint64{4}, VotersOutgoing: []uint64{1, 5}, LearnersNext: []uint64{5}, AutoLeave: true}
	snap := pb.Snapshot{Data: []byte{0, 255}, Metadata: pb.SnapshotMetadata{ConfState: conf, Index: 1 << 40, Term: 7}}
	full := pb.Message{Type: pb.MsgStorageAppend, To: math.MaxUint64, From: 2, Term: 3, LogTerm: 4, Index: 5,
		Entries: []pb.Entry{entry, {}, {Data: []byte{}}}, Commit: 6, Vote: 7, Snapshot: &snap, Reject: true, RejectHint: 8,
		Context: []byte("ctx"), Responses: []pb.Message{{Type: pb.MsgAppResp, Index: 9}, {}}}
	for _, v := range []marshaler{
		&pb.Entry{}, &pb.Entry{Data: []byte{}}, &entry, &pb.Entry{Type: -1, Term: math.MaxUint64, Index: 127},
		&pb.HardState{}, &pb.HardState{Term: 1, Vote: 128, Commit: math.MaxUint64},
		&pb.ConfState{}, &conf,
		&pb.SnapshotMetadata{}, &snap.Metadata,
		&pb.Snapshot{}, &pb.Snapshot{Data: []byte{}}, &snap,
		&pb.Message{}, &pb.Message{Type: pb.MsgHeartbeat, To: 2, From: 1, Term: 9, Commit: 1000, Context: []byte{}}, &full,
		&pb.Message{Type: pb.MsgSnap, Snapshot: &pb.Snapshot{}}, &pb.Message{Type: math.MinInt32},
		&pb.ConfChange{}, &pb.ConfChange{ID: 1, Type: pb.ConfChangeAddLearnerNode, NodeID: 300, Context: []byte("x")},
		&pb.ConfChangeSingle{}, &pb.ConfChangeSingle{Type: pb.ConfChangeRemoveNode, NodeID: 1 << 63},
		&pb.ConfChangeV2{}, &pb.ConfChangeV2{Transition: pb.ConfChangeTransitionJointExplicit,
			Changes: []pb.ConfChangeSingle{{Type: pb.ConfChangeRemoveNode, NodeID: 1}, {}}, Context: []byte{1}},
	} {
		print(v)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 4 {
		for _, v := range []marshaler{&pb.Entry{}, &pb.HardState{}, &pb.ConfState{}, &pb.SnapshotMetadata{}, &pb.Snapshot{},
			&pb.Message{}, &pb.ConfChange{}, &pb.ConfChangeSingle{}, &pb.ConfChangeV2{}} {
			Fill(rng, reflect.ValueOf(v).Elem(), 2)
			print(v)
		}
	}
}

func print(v marshaler) {
	b, err := v.Marshal()
	if err != nil {
		panic(err)
	}
	j, err := json.Marshal(plain(reflect.ValueOf(v).Elem()))
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\t%s\t%s\n", reflect.TypeOf(v).Elem().Name(), hex.EncodeToString(b), j)
}

// plain turns a struct into a map by Go's field names, without upstream's JSON tags.
func plain(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Struct:
		m := map[string]any{}
		for i := range v.NumField() {
			m[v.Type().Field(i).Name] = plain(v.Field(i))
		}
		return m
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return plain(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return v.Interface()
		}
		if v.IsNil() {
			return nil
		}
		l := []any{}
		for i := range v.Len() {
			l = append(l, plain(v.Index(i)))
		}
		return l
	case reflect.Int32:
		return v.Int()
	default:
		return v.Interface()
	}
}

// Fill sets v to a random value; depth bounds the nesting of Responses.
func Fill(rng *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			Fill(rng, v.Field(i), depth)
		}
	case reflect.Pointer:
		if rng.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			Fill(rng, v.Elem(), depth)
		}
	case reflect.Slice:
		n := rng.IntN(5) - 1
		if n < 0 || (n == 0 && v.Type().Elem().Kind() != reflect.Uint8) || depth == 0 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			Fill(rng, v.Index(i), depth-1)
		}
	case reflect.Uint8:
		v.SetUint(uint64(rng.IntN(256)))
	case reflect.Uint64:
		v.SetUint(rng.Uint64() >> rng.IntN(64))
	case reflect.Int32:
		v.SetInt(int64(rng.Int32N(26) - 1))
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	}
}
