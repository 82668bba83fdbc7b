package wireconv

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
	"github.com/agentfense/agentfense/internal/sandbox/readview"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// filler gives each field another value, which is never the default.
type filler struct{ n int }

func (f *filler) next() int {
	f.n++
	return f.n
}

// wellKnown reports whether a message is one of protobuf's own, which is a value as a
// whole.
func wellKnown(d protoreflect.MessageDescriptor) bool {
	return strings.HasPrefix(string(d.FullName()), "google.protobuf.")
}

// message fills all fields of m, and those of the messages in it. Of a oneof the last
// one stays.
func (f *filler) message(m protoreflect.Message) {
	if wellKnown(m.Descriptor()) { // a Timestamp, a Duration
		m.Set(m.Descriptor().Fields().ByName("seconds"), protoreflect.ValueOfInt64(int64(1_700_000_000+f.next())))
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch {
		case fd.IsMap():
			key := protoreflect.ValueOfString(fmt.Sprint("key", f.next())).MapKey()
			m.Mutable(fd).Map().Set(key, f.scalar(fd.MapValue()))
		case fd.IsList():
			list := m.Mutable(fd).List()
			for range 2 {
				if fd.Message() != nil {
					f.message(list.AppendMutable().Message())
				} else {
					list.Append(f.scalar(fd))
				}
			}
		case fd.Message() != nil:
			f.message(m.Mutable(fd).Message())
		default:
			m.Set(fd, f.scalar(fd))
		}
	}
}

func (f *filler) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	n := f.next()
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		values := fd.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(1 + n%(values.Len()-1)).Number())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(n))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprintf("%s%04d", fd.Name(), n))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0xff, byte(n)})
	}
	panic("no value for " + fd.FullName())
}

// differ calls report with the name of each field, such as "FileState.mode", that is not
// the same in both messages.
func differ(want, got protoreflect.Message, report func(field string)) {
	if wellKnown(want.Descriptor()) {
		panic("a value as a whole")
	}
	fields := want.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		name := strings.TrimPrefix(string(fd.FullName()), "sandbox.v1.")
		a, b := want.Get(fd), got.Get(fd)
		switch {
		case want.Has(fd) != got.Has(fd):
			report(name)
		case !want.Has(fd) || fd.Message() == nil || fd.IsMap() || wellKnown(fd.Message()):
			if !a.Equal(b) {
				report(name)
			}
		case !fd.IsList():
			differ(a.Message(), b.Message(), report)
		case a.List().Len() != b.List().Len():
			report(name)
		default:
			for i := range a.List().Len() {
				differ(a.List().Get(i).Message(), b.List().Get(i).Message(), report)
			}
		}
	}
}

// values are those that a field of a type may have.
var values = map[reflect.Type][]any{
	reflect.TypeFor[policy.Permission]():  {policy.View, policy.Read, policy.Write},
	reflect.TypeFor[policy.PatternType](): {policy.Glob, policy.Directory, policy.File},
	reflect.TypeFor[policy.Origin]():      {policy.OriginFlag, policy.OriginHide},
	reflect.TypeFor[record.Status]():      {record.Running},
	reflect.TypeFor[config.Sync]():        {config.SyncOnExec, config.SyncManual},
	reflect.TypeFor[changes.Status]():     {changes.Added, changes.Modified, changes.Deleted, changes.Retyped},
	reflect.TypeFor[review.Risk]():        {review.TrustedLater, review.RunsOnHost},
	reflect.TypeFor[readview.Origin]():    {readview.OfFrozen, readview.OfDelta},
	reflect.TypeFor[conflict.Kind]():      {conflict.Text, conflict.RenameEdit, conflict.HiddenBelow},
	reflect.TypeFor[conflict.Kind]():      {conflict.Link, conflict.DeleteModify, conflict.Refused},
	reflect.TypeFor[apply.Outcome]():      {apply.Kept, apply.Conflict, apply.LeftOut},
	reflect.TypeFor[history.Kind]():       {history.Apply, history.Undo},
	reflect.TypeFor[history.State]():      {history.Committed, history.RolledBack},
	reflect.TypeFor[api.ChangeKind]():     {api.Created, api.Modified, api.Deleted, api.Renamed},
	reflect.TypeFor[outlog.Stream]():      {outlog.Stderr},
	reflect.TypeFor[scratch.Path]():       {scratch.Path("/nm"), scratch.Path("/out")},
}

// value fills v, and all fields in it.
func (f *filler) value(v reflect.Value) {
	if may, limited := values[v.Type()]; limited {
		v.Set(reflect.ValueOf(may[f.next()%len(may)]))
		return
	}
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(int64(1_700_000_000+f.next()), 0).UTC()))
		return
	case vpath.Path:
		v.SetString(fmt.Sprintf("/path%04d", f.next()))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.value(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.value(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			f.value(v.Index(i))
		}
	case reflect.Map:
		key, element := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.value(key)
		f.value(element)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, element)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString(fmt.Sprintf("text%04d", f.next()))
	case reflect.Float64:
		v.SetFloat(float64(f.next()) / 4)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.next()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.next() % 200))
	default:
		panic("no value for " + v.Type().String())
	}
}

// differValue is differ for values of the domain: "Limits.Timeout". What is lost as a
// whole is named as a whole.
func differValue(want, got reflect.Value, name string, lost map[string]string, report func(field string)) {
	at, isTime := reflect.TypeAssert[time.Time](want)
	switch {
	case isTime:
		if !at.Equal(got.Interface().(time.Time)) {
			report(name)
		}
	case lost[name] != "":
		if !reflect.DeepEqual(want.Interface(), got.Interface()) {
			report(name)
		}
	case want.Kind() == reflect.Pointer && !want.IsNil() && !got.IsNil():
		differValue(want.Elem(), got.Elem(), name, lost, report)
	case want.Kind() == reflect.Struct:
		for i := range want.NumField() {
			if field := want.Type().Field(i); field.IsExported() {
				differValue(want.Field(i), got.Field(i), want.Type().Name()+"."+field.Name, lost, report)
			}
		}
	case want.Kind() == reflect.Slice && want.Len() == got.Len():
		for i := range want.Len() {
			differValue(want.Index(i), got.Index(i), name, lost, report)
		}
	case !reflect.DeepEqual(want.Interface(), got.Interface()):
		report(name)
	}
}

// checkLost fails for each field that was lost without a reason, and for each reason
// that no field needs.
func checkLost(t *testing.T, lost map[string]string, find func(report func(field string))) {
	t.Helper()
	found := map[string]bool{}
	find(func(field string) { found[field] = true })
	for field := range found {
		if lost[field] == "" {
			t.Errorf("%s is lost on the way and back", field)
		}
	}
	for field := range lost {
		if !found[field] {
			t.Errorf("%s is not lost: remove it from the table", field)
		}
	}
}

// filled returns a message with all fields set.
func filled[M proto.Message](of M) M {
	m := of.ProtoReflect().New().Interface().(M)
	(&filler{}).message(m.ProtoReflect())
	return m
}
