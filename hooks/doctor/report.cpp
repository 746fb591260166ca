#include "hooks/doctor/report.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"
#include "common/spec/json.hpp"

namespace situla::doctor {
namespace {

constexpr const char* kColourEnd = "\033[0m";

struct Word {
  std::string_view word, colour;
};
/// In the order of State.
constexpr std::array<Word, 4> kWords = {
    {{"ok", "\033[32m"}, {"info", "\033[36m"}, {"warn", "\033[33m"}, {"fail", "\033[1;31m"}}};

const Word& word_of(State state) {
  return kWords[static_cast<size_t>(state)];
}

std::string images_by(const Report& report) {
  if (report.tier == "kernel") return "images by kernel mount";
  if (report.tier == "fuse") return "images by FUSE";
  if (report.tier == "extract") return "images by extraction";
  return "no containers";
}

std::string counted(size_t count, const char* one, const char* many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

}  // namespace

std::string to_text(const Section& section, Colours colours) {
  size_t width = 0;
  for (const Check& check : section.lines) width = std::max(width, check.name.size());
  std::string text = section.title + "\n";
  for (const Check& check : section.lines) {
    text += "  " + paint(check.state, to_string(check.state), 6, colours) + flush_left(check.name, width + 2) +
            printable(check.found) + "\n";
    if (!check.fix.empty()) text += std::string(10 + width, ' ') + "fix: " + printable(check.fix) + "\n";
  }
  return text;
}

std::string_view to_string(State state) {
  return word_of(state).word;
}

Check check_of(const std::string& name, State state, const Error& error, const std::string& fix) {
  return {name, state, error.message(), error.hint().empty() ? fix : error.hint()};
}

Json to_json(const std::string& section, const Check& check) {
  return Json::object({{"section", section},
                       {"name", check.name},
                       {"status", to_string(check.state)},
                       {"found", check.found},
                       {"fix", check.fix},
                       {"facts", Json::object_of(check.facts)}});
}

std::string paint(State state, std::string_view word, size_t width, Colours colours) {
  const std::string blanks(width > word.size() ? width - word.size() : 0, ' ');
  if (colours == Colours::none) return std::string(word) + blanks;
  return std::string(word_of(state).colour).append(word) + kColourEnd + blanks;
}

size_t Report::count(State state) const {
  size_t number = 0;
  for (const Section& section : sections)
    number += static_cast<size_t>(std::count_if(section.lines.begin(), section.lines.end(),
                                                [&](const Check& check) { return check.state == state; }));
  return number;
}

State Report::worst() const {
  return failed() ? State::fail : count(State::warn) > 0 ? State::warn : State::ok;
}

const Check* Report::find(std::string_view name) const {
  for (const Section& section : sections)
    for (const Check& check : section.lines)
      if (check.name == name) return &check;
  return nullptr;
}

std::string Report::text(Colours colours) const {
  std::string text;
  for (const Section& section : sections) text += to_text(section, colours) + "\n";
  const std::string verdict = failed() ? counted(count(State::fail), "check fails", "checks fail") + ", " : "";
  text +=
      paint(worst(), printable(host) + ": " + verdict + counted(count(State::warn), "warning", "warnings"), 0, colours);
  if (!tier.empty()) text += "; " + images_by(*this);
  if (!tier.empty() && !complete) text += " (for what you start yourself; only root's doctor can tell for Slurm jobs)";
  return text + "\n";
}

std::string Report::json() const {
  Json summary = Json::object({{"status", to_string(worst())}});
  for (const State state : {State::ok, State::info, State::warn, State::fail})
    summary.add(std::string(to_string(state)), count(state));
  Json checks = Json::list();
  for (const Section& section : sections)
    for (const Check& check : section.lines) checks.add(to_json(section.name, check));
  return to_text(Json::object({{"schema", kSchema},
                               {"version", version},
                               {"host", host},
                               {"time", time},
                               {"kernel", kernel},
                               {"tier", tier},
                               {"reason", reason},
                               {"complete", complete},
                               {"summary", std::move(summary)},
                               {"checks", std::move(checks)}}));
}

std::string administrators_fix(const std::string& fix) {
  return fix.empty() || fix.starts_with("see the line") ? fix : "ask the administrator: " + fix;
}

void address_to_user(Report& report) {
  for (Section& section : report.sections) {
    if (section.of_caller) continue;
    for (Check& check : section.lines) check.fix = administrators_fix(check.fix);
  }
}

Result<Report> parse_report(const std::string& json) {
  const auto document = parse_json(json);
  const Json* checks = document ? document->find("checks") : nullptr;
  if (checks == nullptr || checks->as_list() == nullptr)
    return fail(ErrorKind::corrupt, "not the JSON of situla doctor");
  Report report;
  report.version = document->text("version");
  report.host = document->text("host");
  report.time = document->text("time");
  report.kernel = document->text("kernel");
  report.tier = document->text("tier");
  report.reason = document->text("reason");
  const Json* complete = document->find("complete");
  report.complete = complete == nullptr || complete->as_truth() != false;
  for (const Json& line : *checks->as_list()) {
    if (line.as_object() == nullptr) return fail(ErrorKind::corrupt, "not the JSON of situla doctor");
    Check check{line.text("name"), State::fail, line.text("found"), line.text("fix")};
    for (const State state : {State::ok, State::info, State::warn})
      if (line.text("status") == to_string(state)) check.state = state;
    for (const auto& [name, value] : line.members("facts"))
      if (value.as_text() != nullptr) check.facts.emplace_back(name, *value.as_text());
    const std::string section = line.text("section");
    if (report.sections.empty() || report.sections.back().name != section)
      report.sections.push_back({section, section, {}});
    report.sections.back().lines.push_back(std::move(check));
  }
  return report;
}

std::string Report::brief() const {
  std::string text = images_by(*this);
  if (!reason.empty()) text += " (" + printable(reason) + ")";
  if (!complete) text += "; only root's doctor can tell for Slurm jobs";
  if (!gpus.empty()) text += "; " + printable(gpus);
  text += "\n";
  for (const Section& section : sections)
    for (const Check& check : section.lines)
      if (check.state == State::fail)
        text += "error: " + check.name + ": " + printable(check.found) +
                (check.fix.empty() ? "" : "; fix: " + printable(check.fix)) + "\n";
  return text;
}

}  // namespace situla::doctor
