#include <istream>
#include <streambuf>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "common/base/text.hpp"
#include "hooks/inject/cdi/value.hpp"

namespace situla::cdi {
namespace {

/// Ends the parser, which knows no other way out of an event; caught below.
struct Refused {
  YAML::Mark mark;
};

class Handler final : public YAML::EventHandler {
 public:
  ValueBuilder builder;

  void OnDocumentStart(const YAML::Mark& mark) override { mark_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { take(mark, builder.scalar(Value::Kind::null, "")); }
  // An alias repeats what may be large; ten lines of them make a billion values. No generator writes any.
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { take(mark, builder.refuse("an alias (*)")); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& text) override {
    // "?": plain, "!": quoted
    take(mark, tag == "?" || tag == "!" || tag == "tag:yaml.org,2002:str"
                   ? builder.scalar(tag == "?" ? Value::Kind::word : Value::Kind::string, text)
                   : builder.refuse("the tag " + printable(tag)));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    take(mark, builder.begin(Value::Kind::list));
  }
  void OnSequenceEnd() override { take(mark_, builder.end()); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    take(mark, builder.begin(Value::Kind::map));
  }
  void OnMapEnd() override { take(mark_, builder.end()); }

 private:
  void take(const YAML::Mark& mark, bool taken) {
    mark_ = mark;
    if (!taken) throw Refused{mark};
  }
  YAML::Mark mark_;  ///< of the last event that has one
};

/// Reads from the caller's bytes, without a copy of them.
class Bytes final : public std::streambuf {
 public:
  explicit Bytes(std::string_view text) {
    char* begin = const_cast<char*>(text.data());  // never written to: nothing is ever put back
    setg(begin, begin, begin + text.size());
  }
};

std::string line_of(const YAML::Mark& mark) {
  return mark.line < 0 ? "" : "line " + std::to_string(mark.line + 1) + ": ";
}

}  // namespace

Result<Value> read_yaml(std::string_view text) {
  Handler handler;
  try {
    Bytes bytes(text);
    std::istream stream(&bytes);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(handler)) {
    }
  } catch (const Refused& refused) {
    return fail(ErrorKind::corrupt, line_of(refused.mark) + handler.builder.refusal().value_or("not readable"));
  } catch (const YAML::Exception& error) {
    return fail(ErrorKind::corrupt, line_of(error.mark) + "not YAML: " + printable(error.msg));
  }
  return handler.builder.finish();
}

}  // namespace situla::cdi
