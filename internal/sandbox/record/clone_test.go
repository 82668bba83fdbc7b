package record

import (
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// Readers of one record get copies of it, so a copy must share nothing that one of them could
// change.
func TestACloneSharesNothing(t *testing.T) {
	var r Record
	fill(reflect.ValueOf(&r).Elem())
	c := r.clone()
	if diff := cmp.Diff(r, c, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Errorf("a clone differs: %s", diff)
	}
	var empty Record
	if diff := cmp.Diff(empty, empty.clone()); diff != "" {
		t.Errorf("a clone of an empty record differs: %s", diff)
	}
	shared(t, "Record", reflect.ValueOf(r), reflect.ValueOf(c))
}

var timeType = reflect.TypeFor[time.Time]()

// fill sets every field to something, and everything that refers to others to one with content.
func fill(v reflect.Value) {
	if !v.CanSet() || v.Type() == timeType {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field)
		}
	case reflect.String:
		v.SetString("x")
	}
}

// shared reports what two values refer to both.
func shared(t *testing.T, path string, a, b reflect.Value) {
	t.Helper()
	same := func(p, q unsafe.Pointer) {
		if p == q {
			t.Errorf("%s is shared", path)
		}
	}
	switch {
	case a.Type() == timeType:
	case a.Kind() == reflect.Pointer:
		same(a.UnsafePointer(), b.UnsafePointer())
		shared(t, path, a.Elem(), b.Elem())
	case a.Kind() == reflect.Slice:
		same(a.UnsafePointer(), b.UnsafePointer())
		for i := range a.Len() {
			shared(t, path, a.Index(i), b.Index(i))
		}
	case a.Kind() == reflect.Map:
		same(a.UnsafePointer(), b.UnsafePointer())
		for _, key := range a.MapKeys() {
			shared(t, path, a.MapIndex(key), b.MapIndex(key))
		}
	case a.Kind() == reflect.Struct:
		for i := range a.NumField() {
			shared(t, path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
		}
	}
}
