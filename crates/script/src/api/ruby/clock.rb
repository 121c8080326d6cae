# What Time says with strftime.
class Time
  def strftime(format) Time.__format(format, to_i, usec, utc?) end
  def iso8601(digits = 0)
    fraction = digits > 0 ? ".%#{digits}N" : ""
    strftime("%Y-%m-%dT%H:%M:%S#{fraction}#{utc? ? "Z" : "%:z"}")
  end
  alias xmlschema iso8601
  def httpdate; Time.__format("%a, %d %b %Y %H:%M:%S GMT", to_i, usec, true) end
  def nsec; usec * 1000 end
  alias tv_sec to_i
  alias tv_usec usec
  def utc_offset
    text = strftime("%z")
    seconds = text[1, 2].to_i * 3600 + text[3, 2].to_i * 60
    text.start_with?("-") ? -seconds : seconds
  end
  alias gmt_offset utc_offset
end
