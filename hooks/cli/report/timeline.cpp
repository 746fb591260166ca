#include "hooks/cli/report/timeline.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "common/base/text.hpp"
#include "hooks/cli/report/record_text.hpp"
#include "hooks/cli/report/step_records.hpp"

namespace situla::report {
namespace {

// All in pixels.
constexpr uint64_t kWidth = 1000, kMargin = 16, kLabels = 200, kTotals = 90, kRow = 26, kBar = 16, kHead = 84;
constexpr uint64_t kBars = kWidth - 2 * kMargin - kLabels - kTotals;
constexpr uint64_t kLeft = kMargin + kLabels;
constexpr size_t kMostLabel = 28, kMostTitle = 110;  // bytes

/// Colours that are told apart on white and on black, also by those who see fewer of them (Okabe and Ito).
constexpr std::array<std::string_view, kStepPhases.size()> kColours = {"#0072b2", "#e69f00", "#56b4e9", "#cc79a7",
                                                                       "#999999", "#f0e442", "#009e73", "#d55e00"};

std::string_view colour_of(StepPhase phase) {
  return kColours.at(static_cast<size_t>(phase));
}

std::string shortened(std::string_view text, size_t most) {
  return std::string(first_bytes(text, most)) + (text.size() > most ? "..." : "");
}

std::string text_at(uint64_t x, uint64_t y, std::string_view kind, std::string_view text) {
  return "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\" class=\"" + std::string(kind) + "\">" +
         xml_text(text) + "</text>\n";
}

std::string bar(uint64_t x, uint64_t y, uint64_t width, std::string_view colour, std::string_view tip) {
  return "<rect x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\" width=\"" + std::to_string(width) +
         "\" height=\"" + std::to_string(kBar) + "\" fill=\"" + std::string(colour) + "\"><title>" + xml_text(tip) +
         "</title></rect>\n";
}

/// From the first step's begin to the last one's end.
struct Span {
  uint64_t begin = 0, length = 1;

  [[nodiscard]] uint64_t place(uint64_t time) const {
    const uint64_t since = std::min(time > begin ? time - begin : 0, length);
    return kLeft + since * kBars / length;
  }
};

Span span_of(const std::vector<StepRecord>& records, uint64_t now) {
  uint64_t begin = UINT64_MAX, end = 0;
  for (const StepRecord& record : records) {
    if (begin_of(record) == 0) continue;  // nothing is known of it
    begin = std::min(begin, begin_of(record));
    end = std::max(end, end_of(record, now));
    for (const StepRecord::Phase& phase : record.phases)
      end = std::max(end, phase.begin + length_of(record, phase, now));
  }
  return {begin, std::max<uint64_t>(end > begin ? end - begin : 0, 1)};
}

/// Of milliseconds: 1, 2 or 5 with zeros, so that there are at most nine of them.
uint64_t tick_of(uint64_t length) {
  constexpr uint64_t kMostTicks = 9;
  for (uint64_t power = 1;; power *= 10)
    for (const uint64_t factor : {1U, 2U, 5U})
      if (power * factor * kMostTicks >= length) return power * factor;
}

/// Ticks are round: "500 ms", "10 s", "2:00".
std::string tick_text(uint64_t time) {
  constexpr uint64_t kWhole = 1000, kMostSeconds = 60;
  if (time >= kMostSeconds * kWhole || time % kWhole != 0) return seconds_text(time);
  return std::to_string(time / kWhole) + " s";
}

std::string axis(const Span& span, uint64_t rows) {
  std::string lines;
  const uint64_t bottom = kHead + rows * kRow;
  for (uint64_t time = 0; time <= span.length; time += tick_of(span.length)) {
    const std::string x = std::to_string(span.place(span.begin + time));
    lines += "<line x1=\"" + x + "\" y1=\"" + std::to_string(kHead - 6) + "\" x2=\"" + x + "\" y2=\"" +
             std::to_string(bottom) + "\" class=\"grid\"/>\n";
    lines += text_at(span.place(span.begin + time), kHead - 10, "tick", tick_text(time));
  }
  return lines;
}

std::string legend(const std::vector<StepRecord>& records) {
  std::set<StepPhase> used;
  for (const StepRecord& record : records)
    for (const StepRecord::Phase& phase : record.phases) used.insert(phase.phase);
  std::string text;
  uint64_t x = kMargin;
  constexpr uint64_t kTop = 38, kEach = 84, kSwatch = 20;
  for (const StepPhase phase : used) {
    text += "<rect x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(kTop) +
            "\" width=\"14\" height=\"12\" fill=\"" + std::string(colour_of(phase)) + "\"/>\n" +
            text_at(x + kSwatch, kTop + 10, "label", to_string(phase));
    x += kEach;
  }
  return text;
}

std::string row(const StepRecord& record, const Span& span, uint64_t top, uint64_t now) {
  std::string text = text_at(kMargin, top + 12, "label", shortened(name_of(record), kMostLabel));
  for (const StepRecord::Phase& phase : record.phases) {
    const uint64_t length = length_of(record, phase, now);
    const uint64_t from = span.place(phase.begin), to = span.place(phase.begin + length);
    const std::string tip = std::string(to_string(phase.phase)) + ": " + seconds_text(length) + ", from " +
                            time_text(phase.begin) + (phase.length ? "" : ", goes on");
    // A pixel also for what is too short to be seen.
    text += bar(std::min(from, kLeft + kBars - 1), top, std::max<uint64_t>(to - from, 1), colour_of(phase.phase), tip);
  }
  const uint64_t begin = begin_of(record), end = begin == 0 ? 0 : end_of(record, now);
  text += text_at(kWidth - kMargin, top + 12, "total", seconds_text(end > begin ? end - begin : 0));
  if (!record.failure) return text;
  const std::string tip = record.failure->text;
  return text + "<g class=\"failed\"><title>" + xml_text(tip) + "</title>\n" +
         text_at(std::min(span.place(end) + 4, kLeft + kBars - 130), top + 12, "failed", record.failure->code) +
         "</g>\n";
}

constexpr std::string_view kStyle =
    "<style>\n"
    "svg { background: #ffffff; color-scheme: light dark; }\n"
    "text { font: 12px sans-serif; fill: #1b1b1b; }\n"
    ".title { font-size: 15px; font-weight: bold; }\n"
    ".tick { text-anchor: middle; fill: #5b5b5b; font-size: 11px; }\n"
    ".total { text-anchor: end; }\n"
    ".failed { font-weight: bold; fill: #b00020; }\n"
    ".grid { stroke: #d8d8d8; stroke-width: 1; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  svg { background: #16181c; }\n"
    "  text { fill: #ececec; }\n"
    "  .tick { fill: #a8a8a8; }\n"
    "  .failed { fill: #ff8a80; }\n"
    "  .grid { stroke: #3a3d42; }\n"
    "}\n"
    "</style>\n";

}  // namespace

std::string xml_text(std::string_view text) {
  std::string escaped;
  std::string lines;
  // Control characters may not stand in XML, whether escaped or not; lines may.
  for (const std::string_view line : split(text, '\n')) lines += (lines.empty() ? "" : " ") + printable(line);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view rest = std::string_view(lines).substr(i);
    if (rest.starts_with("\xef\xbf\xbe") || rest.starts_with("\xef\xbf\xbf")) {
      // No characters of XML: U+FFFE and U+FFFF.
      escaped += '?';
      i += 2;
      continue;
    }
    switch (lines[i]) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += lines[i];
    }
  }
  return escaped;
}

std::string draw_timeline(const std::vector<StepRecord>& records, std::string_view title, uint64_t now) {
  const size_t rows = std::min(records.size(), kMostRows);
  const bool more = records.size() > rows;
  const std::vector<StepRecord> drawn(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(rows));
  const Span span = span_of(drawn, now);
  const uint64_t height = kHead + (rows + (more ? 1 : 0)) * kRow + kMargin;
  const std::string size = std::to_string(kWidth) + " " + std::to_string(height);
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + size + "\" width=\"" +
                    std::to_string(kWidth) + "\" height=\"" + std::to_string(height) + "\" role=\"img\">\n<title>" +
                    xml_text(title) + "</title>\n" + std::string(kStyle) +
                    text_at(kMargin, 24, "title", shortened(title, kMostTitle)) + legend(drawn) + axis(span, rows);
  svg += text_at(kWidth - kMargin, kHead - 10, "total", "total");
  uint64_t top = kHead + (kRow - kBar) / 2;
  for (const StepRecord& record : drawn) {
    svg += row(record, span, top, now);
    top += kRow;
  }
  if (more) svg += text_at(kMargin, top + 12, "label", std::to_string(records.size() - rows) + " more");
  return svg + "</svg>\n";
}

}  // namespace situla::report
